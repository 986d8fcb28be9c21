//! Opens a socket to a server.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::config::Address;

/// A connected socket.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl Address {
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Socket>> {
        match self {
            Self::Tcp(host) => {
                let stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
                // A call is one small packet, and must not wait for an acknowledgement.
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }
}
