//! One native connection: reads calls, applies them, writes what is answered.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep};
use tollgate_embedded::durable::Durability;
use tollgate_proto::frame::{self, Call, Hello, MAGIC, Malformed, Refusal, Reply, Welcome};

use super::calls;
use super::outbox::{ENOUGH, Outbox};
use crate::own::TableService;

/// How long a client has to introduce itself.
const TO_GREET: Duration = Duration::from_secs(5);
/// After how long without a byte a client is asked whether it is there, and after how long again
/// its connection is dropped.
const SILENCE: Duration = Duration::from_secs(15);
/// How long what remains may take to be written when a connection ends.
const TO_END: Duration = Duration::from_secs(2);
/// How much room there is for what arrives, at least; a longer frame gets more.
const ROOM: usize = 8 << 10;

/// Serves one connection until it ends. `first` is what was read of it already, from its first byte
/// on. Runs on the thread of the service.
///
/// Dropped, it closes the connection: claims that wait keep their places for a while.
pub async fn serve<S>(stream: S, first: Vec<u8>, service: TableService)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let outbox = service.native().add(service.connect());
    let mut connection = Connection {
        stream,
        open: Registered { service, outbox },
        arrived: first,
        read: 0,
        out: Vec::new(),
        written: 0,
        is_greeted: false,
        has_more: false,
        has_heard: false,
        has_pinged: false,
    };
    let how = connection.run().await;
    if let End::Refused(refusal) = how {
        connection.open.outbox.send(0, &Reply::Refused(refusal));
    }
    if !matches!(how, End::Closed) {
        // A client that does not read is left alone.
        let _ = tokio::time::timeout(TO_END, connection.flush()).await;
    }
}

/// Refuses a connection whose first bytes were read.
pub async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin, refusal: Refusal) {
    let mut bytes = Vec::new();
    Reply::Refused(refusal).write(0, &mut bytes);
    let refusing = async {
        // A connection that is closed with its greeting unread may lose the answer.
        let _greeting = stream.read(&mut [0; 256]).await?;
        stream.write_all(&bytes).await?;
        stream.shutdown().await
    };
    // The client may be gone.
    let _ = tokio::time::timeout(TO_END, refusing).await;
}

/// A connection that the service knows, until this is dropped.
struct Registered {
    service: TableService,
    outbox: Rc<Outbox>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.service.native().remove(&self.outbox);
        self.service.close(self.outbox.connection);
    }
}

struct Connection<S> {
    stream: S,
    open: Registered,
    /// What has arrived, of which `read` bytes are done with.
    arrived: Vec<u8>,
    read: usize,
    /// What is being sent, of which `written` bytes are sent.
    out: Vec<u8>,
    written: usize,
    is_greeted: bool,
    /// Calls have arrived that wait until their answers have room.
    has_more: bool,
    /// Something has arrived since the timer was set.
    has_heard: bool,
    /// The client was asked whether it is there.
    has_pinged: bool,
}

/// Why a connection ends.
enum End {
    /// There is no other end any more.
    Closed,
    /// The server stops.
    Stopped,
    Refused(Refusal),
}

/// What a connection has to do next.
enum Event {
    Arrived,
    /// There is room for more answers.
    Room,
    Silence,
    End(End),
}

impl From<Malformed> for End {
    fn from(_: Malformed) -> Self {
        Self::Refused(Refusal::Malformed)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> End {
        let mut timer = pin!(sleep(TO_GREET));
        loop {
            if let Err(end) = self.apply() {
                return end;
            }
            match poll_fn(|context| self.poll(context, timer.as_mut())).await {
                Event::Arrived => (self.has_heard, self.has_pinged) = (true, false),
                Event::Room => {}
                // What has arrived while the server was stopped is read first.
                Event::Silence if !self.is_greeted || self.has_pinged => return End::Closed,
                Event::Silence => {
                    if !std::mem::take(&mut self.has_heard) {
                        self.has_pinged = true;
                        self.open.outbox.push(0, &Reply::Ping);
                    }
                }
                Event::End(end) => return end,
            }
        }
    }

    /// Writes what there is, and waits for something to do.
    fn poll(&mut self, context: &mut Context<'_>, mut timer: Pin<&mut Sleep>) -> Poll<Event> {
        let outbox = &self.open.outbox;
        outbox.listen(context.waker());
        if outbox.is_overfull() {
            return Poll::Ready(Event::End(End::Refused(Refusal::TooSlow)));
        }
        loop {
            if self.written == self.out.len() {
                self.out.clear();
                // After a long answer its memory is not kept.
                self.out.shrink_to(ENOUGH);
                self.written = 0;
                outbox.take(&mut self.out);
            }
            if self.out.is_empty() {
                if outbox.is_ending() {
                    return Poll::Ready(Event::End(End::Stopped));
                }
                break;
            }
            match Pin::new(&mut self.stream).poll_write(context, &self.out[self.written..]) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Event::End(End::Closed)),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Pending => break,
            }
        }
        if self.out.len() - self.written + outbox.waiting() < ENOUGH {
            if std::mem::take(&mut self.has_more) {
                return Poll::Ready(Event::Room);
            }
            self.arrived.drain(..self.read);
            self.read = 0;
            self.arrived.reserve(ROOM);
            match pin!(self.stream.read_buf(&mut self.arrived)).poll(context) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Event::End(End::Closed)),
                Poll::Ready(Ok(_)) => return Poll::Ready(Event::Arrived),
                Poll::Pending => {}
            }
        }
        if timer.as_mut().poll(context).is_ready() {
            timer.reset(Instant::now() + SILENCE);
            return Poll::Ready(Event::Silence);
        }
        Poll::Pending
    }

    /// Applies every call that has arrived.
    fn apply(&mut self) -> Result<(), End> {
        let Self { open: Registered { service, outbox }, arrived, read, is_greeted, has_more, .. } = self;
        if !*is_greeted {
            let Some(rest) = arrived.get(MAGIC.len()..) else { return Ok(()) };
            if !arrived.starts_with(&MAGIC) {
                return Err(End::Refused(Refusal::Malformed));
            }
            let Some(length) = frame::first(rest)? else { return Ok(()) };
            let (id, Call::Hello(hello)) = Call::read(&rest[..length])? else {
                return Err(End::Refused(Refusal::Malformed));
            };
            greet(service, outbox, id, hello)?;
            (*is_greeted, *read) = (true, MAGIC.len() + length);
        }
        let now = service.now();
        let mut is_any = false;
        while let Some(length) = frame::first(&arrived[*read..])? {
            if service.is_stopping() {
                // What is applied now might not be stored; the client asks the next run.
                return Ok(());
            }
            if outbox.waiting() >= ENOUGH {
                *has_more = true;
                break;
            }
            let (id, call) = Call::read(&arrived[*read..*read + length])?;
            if id <= outbox.last_read().0 {
                // Two answers with one number could not be told apart.
                return Err(End::Refused(Refusal::Malformed));
            }
            calls::apply(service, outbox, id, call, now);
            *read += length;
            is_any = true;
        }
        if is_any {
            service.turn();
        }
        Ok(())
    }

    /// Writes what remains.
    async fn flush(&mut self) -> std::io::Result<()> {
        loop {
            self.stream.write_all(&self.out[self.written..]).await?;
            self.out.clear();
            self.written = 0;
            self.open.outbox.take(&mut self.out);
            if self.out.is_empty() {
                return self.stream.shutdown().await;
            }
        }
    }
}

/// Answers a client that introduced itself.
fn greet(service: &TableService, outbox: &Rc<Outbox>, id: u32, hello: Hello) -> Result<(), End> {
    let native = service.native();
    if hello.version != frame::VERSION {
        return Err(End::Refused(Refusal::Version(frame::VERSION)));
    }
    native.introduce(outbox, hello.client);
    let durability = match native.durability {
        Durability::Sync => tollgate_proto::Durability::Sync,
        Durability::Grace => tollgate_proto::Durability::Grace,
    };
    let (run, longest) = (native.run, native.longest);
    outbox.has_read(id, service.now());
    outbox.send(id, &Reply::Welcome(Welcome { version: frame::VERSION, run, durability, longest }));
    Ok(())
}
