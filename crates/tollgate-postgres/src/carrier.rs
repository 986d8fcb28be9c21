//! The socket that a connection goes over.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::Config;

/// A socket, connected.
#[derive(Debug)]
pub(crate) enum Carrier {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Carrier {
    /// Connects to the socket in `folder`.
    pub(crate) async fn unix(folder: &Path, port: u16) -> io::Result<Self> {
        Ok(Self::Unix(UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?))
    }

    /// Connects to `address`, and has the system notice when the other end is gone, as `server` says.
    pub(crate) async fn tcp(address: SocketAddr, server: &Config) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        if let Some(limit) = server.get_tcp_user_timeout() {
            sockopt::set_tcp_user_timeout(&socket, millis(*limit))?;
        }
        if server.get_keepalives() {
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, server.get_keepalives_idle())?;
            if let Some(interval) = server.get_keepalives_interval() {
                sockopt::set_tcp_keepintvl(&socket, interval)?;
            }
            if let Some(retries) = server.get_keepalives_retries() {
                sockopt::set_tcp_keepcnt(&socket, retries)?;
            }
        }
        Ok(Self::Tcp(socket))
    }

    /// Whether what goes over it does not leave the machine. A name says nothing: it may resolve to any address.
    pub(crate) fn is_private(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(socket) => socket.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback()),
        }
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

impl AsyncRead for Carrier {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Unix(socket) => Pin::new(socket).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Unix(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The system has it when it was written.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Unix(socket) => Pin::new(socket).poll_shutdown(context),
        }
    }
}
