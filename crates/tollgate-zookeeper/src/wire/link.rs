//! The requests of one connection, answered in the order in which they were asked.
//!
//! Whoever asks writes to the connection itself where that takes no wait: no other thread has to be woken for it. Answers are
//! read by a task on the keeper. When the connection is lost everything that was asked over it fails, and every watch ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};

use super::carrier::{Carrier, Plain};
use super::fault::{Code, Fault};
use super::jute::{Garbled, Reader, frame_length};
use super::ops::{EVENT_XID, Request, answer};
use super::watches::{Watch, Watches, event};

/// How much is made room for at once when answers are read.
const ROOM: usize = 16 << 10;
/// How many are unanswered before requests go out together, by the task: to write each by itself would cost more.
const MANY: usize = 32;

/// One connection of a session.
#[derive(Debug)]
pub(crate) struct Link {
    /// Which of the session's connections it is, from 1.
    pub(crate) number: u64,
    line: Mutex<Line>,
    /// There is something to write, or it is to end.
    stir: Notify,
    /// The last transaction that the session has seen.
    seen: Arc<AtomicI64>,
}

#[derive(Debug)]
struct Line {
    is_closed: bool,
    /// To be written by whoever asks; nothing if it is encrypted.
    direct: Option<Plain>,
    next: i32,
    pending: VecDeque<Pending>,
    /// What the task has to write.
    unsent: Vec<u8>,
    /// The task is writing; whoever writes now would get in between.
    is_writing: bool,
    /// How many bytes were to be written since it began, and how many may have been.
    queued: u64,
    written: u64,
    /// When something last came: a part of a long answer is no silence.
    heard: Instant,
    watches: Watches,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Pending {
    xid: i32,
    /// Which byte of all that were to be written is its first.
    begins: u64,
    asked: Instant,
    reply: oneshot::Sender<Result<Vec<u8>, Fault>>,
}

/// An answer that is to come.
#[derive(Debug)]
pub(crate) struct Answer(oneshot::Receiver<Result<Vec<u8>, Fault>>);

impl Answer {
    /// What was answered, as `read` understands it.
    pub(crate) async fn read<T>(
        self,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, Garbled>,
    ) -> Result<T, Fault> {
        let body = self.0.await.unwrap_or(Err(Fault::Lost))?;
        read(&mut Reader(&body)).map_err(|Garbled| Fault::Garbled)
    }
}

impl Link {
    /// The newest transaction that the session has seen.
    pub(crate) fn seen(&self) -> i64 {
        self.seen.load(Ordering::Acquire)
    }

    pub(crate) fn new(number: u64, carrier: &Carrier, seen: Arc<AtomicI64>) -> Self {
        let line = Line {
            is_closed: false,
            direct: carrier.direct(),
            next: 1,
            pending: VecDeque::new(),
            unsent: Vec::new(),
            is_writing: false,
            queued: 0,
            written: 0,
            heard: Instant::now(),
            watches: Watches::default(),
        };
        Self { number, line: Mutex::new(line), stir: Notify::new(), seen }
    }

    /// Asks; gives the request back if the connection is lost already.
    pub(crate) fn ask(&self, request: Request) -> Result<Answer, Request> {
        self.ask_and_watch(request).map(|(answer, _)| answer)
    }

    /// The same for a request that asks to be told of events.
    pub(crate) fn ask_and_watch(&self, request: Request) -> Result<(Answer, Vec<Watch>), Request> {
        let mut line = self.line();
        if line.is_closed {
            return Err(request);
        }
        let (asked, frame) = line.note(request);
        self.send(&mut line, frame);
        Ok(asked)
    }

    /// Asks two things at once, in this order.
    pub(crate) fn ask_both(
        &self,
        first: Request,
        second: Request,
    ) -> Result<(Answer, Answer), (Request, Request)> {
        let mut line = self.line();
        if line.is_closed {
            return Err((first, second));
        }
        let ((first, _), mut frames) = line.note(first);
        let ((second, _), frame) = line.note(second);
        frames.extend(frame);
        self.send(&mut line, frames);
        Ok((first, second))
    }

    fn send(&self, line: &mut Line, frames: Vec<u8>) {
        let mut sent = 0;
        if let Some(direct) = &line.direct
            && !line.is_writing
            && line.unsent.is_empty()
            && line.pending.len() < MANY
        {
            // What is wrong with it shows when it is read, too, and is told from there.
            sent = direct.write_now(&frames).unwrap_or(0);
            line.written += sent as u64;
        }
        if sent < frames.len() {
            line.unsent.extend_from_slice(&frames[sent..]);
            self.stir.notify_one();
        }
    }

    /// Serves the connection until it is lost, or silent for as long as `silence` though somebody waits for an answer.
    pub(crate) async fn run(&self, carrier: Carrier, silence: Duration) {
        // Whatever ends this, nobody waits for ever.
        let _close = CloseOnDrop(self);
        let (from, to) = tokio::io::split(carrier);
        tokio::select! {
            biased;
            () = self.read(from) => {}
            () = self.write(to) => {}
            () = self.until_silent(silence) => {}
        }
    }

    /// Has it end; the session goes on over another.
    pub(crate) fn leave(&self) {
        let mut line = self.line();
        line.is_closed = true;
        line.direct = None;
        self.stir.notify_one();
    }

    /// Nothing more can be asked over it, and what was asked has failed.
    fn close(&self) {
        let (pending, written, watches) = {
            let mut line = self.line();
            line.is_closed = true;
            line.direct = None;
            (std::mem::take(&mut line.pending), line.written, std::mem::take(&mut line.watches))
        };
        for asked in pending {
            let fault = if asked.begins < written { Fault::Lost } else { Fault::Unsent };
            // Whoever asked may have given up.
            let _ = asked.reply.send(Err(fault));
        }
        drop(watches);
    }

    async fn read(&self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = Vec::new();
        loop {
            buffer.reserve(ROOM);
            match from.read_buf(&mut buffer).await {
                Ok(1..) => self.line().heard = Instant::now(),
                Ok(0) | Err(_) => return,
            }
            match self.take_frames(&buffer) {
                Ok(taken) => drop(buffer.drain(..taken)),
                Err(Garbled) => return,
            }
            // One long list does not make every connection large.
            if buffer.is_empty() && buffer.capacity() > ROOM * 64 {
                buffer = Vec::new();
            }
        }
    }

    /// Takes all frames that are complete; how many bytes they were.
    fn take_frames(&self, bytes: &[u8]) -> Result<usize, Garbled> {
        let mut rest = bytes;
        while let Some((length, after)) = rest.split_first_chunk() {
            let Some((frame, after)) = after.split_at_checked(frame_length(*length)?) else { break };
            self.take_frame(frame)?;
            rest = after;
        }
        Ok(bytes.len() - rest.len())
    }

    fn take_frame(&self, frame: &[u8]) -> Result<(), Garbled> {
        let mut reader = Reader(frame);
        let head = answer::head(&mut reader)?;
        let mut line = self.line();
        if head.xid == EVENT_XID {
            if let Some(event) = event(&mut reader)? {
                line.watches.tell(&event);
            }
            return Ok(());
        }
        let asked = line.pending.pop_front().ok_or(Garbled)?;
        drop(line);
        if asked.xid != head.xid {
            let _ = asked.reply.send(Err(Fault::Lost));
            return Err(Garbled);
        }
        self.seen.fetch_max(head.zxid, Ordering::AcqRel);
        let answer = match head.code {
            Code(0) => Ok(reader.0.to_vec()),
            code => Err(Fault::Refused(code)),
        };
        let _ = asked.reply.send(answer);
        // The session goes on over another connection than this; so do we.
        if head.code == Code::SESSION_MOVED { Err(Garbled) } else { Ok(()) }
    }

    async fn write(&self, mut to: impl AsyncWrite + Unpin) {
        loop {
            self.stir.notified().await;
            loop {
                let bytes = {
                    let mut line = self.line();
                    if line.is_closed {
                        return;
                    }
                    line.is_writing = !line.unsent.is_empty();
                    // From here on nobody knows what the other side has of it.
                    line.written = line.queued;
                    std::mem::take(&mut line.unsent)
                };
                if bytes.is_empty() {
                    break;
                }
                if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
                    return;
                }
            }
        }
    }

    async fn until_silent(&self, silence: Duration) {
        let mut seems_so = false;
        loop {
            tokio::time::sleep(silence / 8).await;
            let line = self.line();
            let is_silent =
                line.pending.front().is_some_and(|oldest| oldest.asked.max(line.heard).elapsed() >= silence);
            // If we were stopped, what came meanwhile has not been read yet.
            if line.is_closed || (is_silent && seems_so) {
                return;
            }
            seems_so = is_silent;
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Notes a request that is about to be sent; its frame.
    fn note(&mut self, mut request: Request) -> ((Answer, Vec<Watch>), Vec<u8>) {
        let watches = std::mem::take(&mut request.watches);
        let watches = watches.into_iter().map(|(kind, path)| self.watches.add(kind, path)).collect();
        let (reply, answer) = oneshot::channel();
        let xid = self.next;
        // Those below 0 mean something else.
        self.next = if xid == i32::MAX { 1 } else { xid + 1 };
        let frame = request.frame(xid);
        self.pending.push_back(Pending { xid, begins: self.queued, asked: Instant::now(), reply });
        self.queued += frame.len() as u64;
        ((Answer(answer), watches), frame)
    }
}

struct CloseOnDrop<'a>(&'a Link);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
