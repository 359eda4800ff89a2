//! Opening one WebSocket to the hub.

use crate::error::{self, HubError};
use crate::{CONNECT_TIMEOUT, Client, ClientError, tls};
use futures::FutureExt;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use std::panic::AssertUnwindSafe;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error as WsError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, client_async_tls_with_config};

/// The largest frame that is taken: far beyond what a hub sends unless its limits were raised a lot.
const MAX_FRAME_BYTES: usize = 1 << 30;

/// An open WebSocket.
pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Why connecting failed.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The hub answers, and refuses.
    Refused(HubError),
    /// It may be there later.
    Away(String),
    /// It will never work.
    Wrong(String),
}

impl DialError {
    /// Whether the token is what the hub does not like.
    pub fn is_about_the_token(&self) -> bool {
        matches!(self, Self::Refused(error) if [401, 403].contains(&error.status))
    }

    /// Whether there is no point in trying again, in the same way, ever.
    pub fn is_final(&self) -> bool {
        self.is_about_the_token() || matches!(self, Self::Wrong(_))
    }

    pub fn into_error(self, url: &str) -> ClientError {
        match self {
            Self::Refused(error) => ClientError::Hub(Box::new(error)),
            Self::Away(why) | Self::Wrong(why) => ClientError::NoConnection { url: url.to_owned(), why },
        }
    }
}

impl std::fmt::Display for DialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Away(why) | Self::Wrong(why) => f.write_str(why),
        }
    }
}

/// Opens a connection. The token is requested each time.
pub(crate) async fn dial(client: &Client) -> Result<Socket, DialError> {
    // A source is code of the user's, and its panic must not end the connection.
    let token = AssertUnwindSafe(client.token.now()).catch_unwind().await;
    let token = token.map_err(|_| DialError::Away("the token source panicked".into()))?;
    let token = token.map_err(|error| DialError::Away(error.to_string()))?;
    match timeout(CONNECT_TIMEOUT, open(client, token)).await {
        Ok(socket) => socket,
        Err(_) => Err(DialError::Away(format!("no answer within {CONNECT_TIMEOUT:?}"))),
    }
}

async fn open(client: &Client, token: Option<String>) -> Result<Socket, DialError> {
    let (scheme, connector) = match &client.tls {
        Some(config) => ("wss", Connector::Rustls(config.clone())),
        None => ("ws", Connector::Plain),
    };
    let address = format!("{scheme}://{}{}/ws", client.host_and_port(), client.base_path());
    let wrong = |error: &dyn std::fmt::Display| DialError::Wrong(error.to_string());
    let mut request = address.into_client_request().map_err(|error| wrong(&error))?;
    if let Some(token) = token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| DialError::Wrong("the token cannot be sent: it has invalid characters".into()))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let host = client.host_and_port();
    let stream =
        TcpStream::connect(host.as_str()).await.map_err(|error| DialError::Away(error.to_string()))?;
    stream.set_nodelay(true).map_err(|error| DialError::Away(error.to_string()))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES));
    let opened = client_async_tls_with_config(request, stream, Some(config), Some(connector)).await;
    match opened {
        Ok((socket, _)) => Ok(socket),
        Err(WsError::Http(answer)) => {
            let body = answer.body().as_deref().unwrap_or_default();
            Err(DialError::Refused(error::parse(answer.status().as_u16(), body)))
        }
        Err(error) => Err(DialError::Away(tls::explain(&error).unwrap_or_else(|| error.to_string()))),
    }
}
