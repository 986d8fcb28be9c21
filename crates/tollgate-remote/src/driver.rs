//! The task that reads and writes one connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep};
use tollgate_proto::frame::{self, Call};

use crate::address::Socket;
use crate::calls::Open;
use crate::link::Shared;

/// How long a connection may be silent after it was asked whether it lives.
const PATIENCE: Duration = Duration::from_secs(4);
/// How much room there is for what arrives, at least.
const ROOM: usize = 8 << 10;

/// Drives a connection until it is closed. `arrived` was read behind the greeting.
pub(crate) async fn drive(socket: Box<dyn Socket>, arrived: Vec<u8>, shared: Arc<Shared>) {
    let driver = Driver {
        socket,
        end: EndOnDrop(shared),
        arrived,
        out: Vec::new(),
        written: 0,
        has_heard: true,
        asked: None,
        look_from: None,
    };
    driver.run().await;
}

/// Closes the connection when its task ends, in whatever way: also with its runtime.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Driver {
    socket: Box<dyn Socket>,
    end: EndOnDrop,
    arrived: Vec<u8>,
    /// What is being written, of which `written` bytes are.
    out: Vec<u8>,
    written: usize,
    /// Something has arrived since the last look.
    has_heard: bool,
    /// When the server was asked whether it is there, if nothing has arrived since.
    asked: Option<Instant>,
    /// When the last look was, while the timer runs.
    look_from: Option<Instant>,
}

enum Event {
    Arrived,
    Look,
    Closed,
}

impl Driver {
    async fn run(mut self) {
        let mut timer = pin!(sleep(Duration::ZERO));
        loop {
            if !self.receive() {
                return;
            }
            match poll_fn(|context| self.poll(context, timer.as_mut())).await {
                Event::Arrived => (self.has_heard, self.asked) = (true, None),
                Event::Look if self.is_dead() => return,
                Event::Look => {}
                Event::Closed => return,
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, mut timer: Pin<&mut Sleep>) -> Poll<Event> {
        loop {
            if self.written == self.out.len() {
                self.out.clear();
                self.written = 0;
                let mut calls = self.end.0.calls();
                std::mem::swap(&mut calls.out, &mut self.out);
                if self.out.is_empty() {
                    if calls.is_closed && calls.is_idle() {
                        return Poll::Ready(Event::Closed);
                    }
                    match &mut calls.waker {
                        Some(waker) => waker.clone_from(context.waker()),
                        none => *none = Some(context.waker().clone()),
                    }
                    break;
                }
            }
            match Pin::new(&mut self.socket).poll_write(context, &self.out[self.written..]) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Event::Closed),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Pending => break,
            }
        }
        self.arrived.reserve(ROOM);
        match pin!(self.socket.read_buf(&mut self.arrived)).poll(context) {
            Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Event::Closed),
            Poll::Ready(Ok(_)) => return Poll::Ready(Event::Arrived),
            Poll::Pending => {}
        }
        self.set_timer(timer.as_mut());
        if self.look_from.is_some() && timer.as_mut().poll(context).is_ready() {
            self.look_from = None;
            return Poll::Ready(Event::Look);
        }
        Poll::Pending
    }

    /// Has the timer run while the server owes answers, and not otherwise.
    fn set_timer(&mut self, mut timer: Pin<&mut Sleep>) {
        let (is_owed, look) = {
            let calls = self.end.0.calls();
            (!calls.is_idle(), calls.look)
        };
        if !is_owed {
            self.look_from = None;
            return;
        }
        let from = match self.look_from {
            Some(from) if timer.deadline() <= from + look => return,
            Some(from) => from,
            None => Instant::now(),
        };
        self.look_from = Some(from);
        timer.as_mut().reset(from + look);
    }

    /// Looks after the connection: asks a silent server whether it is there, and keeps hand-overs
    /// fresh. Answers whether the server has not answered that for too long.
    fn is_dead(&mut self) -> bool {
        if self.asked.is_some_and(|asked| asked.elapsed() >= PATIENCE) {
            return true;
        }
        let has_heard = std::mem::take(&mut self.has_heard);
        let mut calls = self.end.0.calls();
        let has_waiting = calls.has_waiting();
        if calls.is_closed {
            return false;
        }
        if has_waiting || (!has_heard && !calls.is_idle()) {
            let now = self.end.0.now();
            calls.add(&Call::Ping, Some(Open::Ping), now);
            self.asked.get_or_insert_with(Instant::now);
        }
        false
    }

    /// Passes on every whole frame; `false` if the server says what this protocol does not have.
    fn receive(&mut self) -> bool {
        let mut read = 0;
        let shared = &self.end.0;
        let mut calls = None;
        while let Ok(Some(length)) = frame::first(&self.arrived[read..]) {
            let calls = calls.get_or_insert_with(|| shared.calls());
            if calls.receive(&self.arrived[read..read + length], shared.now()).is_err() {
                return false;
            }
            read += length;
        }
        drop(calls);
        self.arrived.drain(..read);
        frame::first(&self.arrived).is_ok()
    }
}
