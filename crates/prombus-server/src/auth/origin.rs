//! Web pages that call the hub: pages from its own host may, and those whose origin the configuration lists.
//!
//! A browser sends any page's requests to any address, loopback included, and only `Origin` says whose page it is.
//! Requests that change something are refused to pages of other origins. Reads are answered, and the browser withholds
//! the answer from a page that CORS does not allow to see it.

use super::Hosts;
use crate::error::ApiError;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// How long a browser may cache the answer to a preflight request, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE");

/// Which pages from other hosts may call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins {
    named: Vec<String>,
    /// Without authentication, the hosts that count as the hub's own. A page from any other host is foreign, whatever
    /// host it calls.
    own: Option<Hosts>,
}

/// The page that makes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    /// Not a page, or one from the hub's own host.
    Own,
    /// A page that may call, and needs CORS headers.
    Allowed(HeaderValue),
    /// A page that may not call.
    Foreign,
}

impl Origins {
    pub fn new(named: Vec<String>, own: Option<Hosts>) -> Self {
        Self { named, own }
    }

    /// Makes caches keep answers to different pages apart, if they differ.
    pub fn vary(&self, answer: &mut Response) {
        if !self.named.is_empty() {
            answer.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
        }
    }

    pub fn page(&self, headers: &HeaderMap) -> Page {
        let Some(origin) = headers.get(header::ORIGIN) else { return Page::Own };
        let text = origin.to_str().unwrap_or_default();
        if self.named.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(text)) {
            return Page::Allowed(origin.clone());
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        match (text.split_once("://"), host) {
            (Some((_, of)), Some(host))
                if of.eq_ignore_ascii_case(host) && self.own.as_ref().is_none_or(|own| own.knows(host)) =>
            {
                Page::Own
            }
            _ => Page::Foreign,
        }
    }
}

impl Page {
    /// Refuses what a page from another origin must not do.
    pub fn check(&self, method: &Method, upgrade: bool) -> Result<(), ApiError> {
        if *self == Self::Foreign && (upgrade || !method.is_safe()) {
            return Err(ApiError::forbidden(
                "pages from this origin may not call the hub: add it to server.allow_origins",
            ));
        }
        Ok(())
    }

    /// The answer to a preflight request, if this is one.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response> {
        if method != Method::OPTIONS || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let Self::Allowed(_) = self else { return None };
        let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let mut answer = StatusCode::NO_CONTENT.into_response();
        let given: [(HeaderName, Option<HeaderValue>); 3] = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, Some(METHODS)),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, wanted),
            (header::ACCESS_CONTROL_MAX_AGE, Some(MAX_AGE)),
        ];
        for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            answer.headers_mut().insert(name, value);
        }
        Some(self.tell(answer))
    }

    /// Adds the headers that allow the page to see the answer.
    pub fn tell(&self, mut answer: Response) -> Response {
        if let Self::Allowed(origin) = self {
            let headers = answer.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Hosts {
        Hosts::new(&["hub.internal".into()], "server.hosts")
    }

    fn headers(origin: &str, host: &str) -> HeaderMap {
        [(header::ORIGIN, origin), (header::HOST, host)]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn own_pages_and_named_ones_may_call() {
        let origins = Origins::new(vec!["https://app.example".into()], None);
        for (origin, host, page) in [
            ("", "hub:7070", Page::Own),
            ("http://hub:7070", "hub:7070", Page::Own),
            ("http://HUB:7070", "hub:7070", Page::Own),
            ("http://hub:7071", "hub:7070", Page::Foreign),
            ("http://hub:7070.evil", "hub:7070", Page::Foreign),
            ("https://app.example", "hub", Page::Allowed(HeaderValue::from_static("https://app.example"))),
            ("http://app.example", "hub", Page::Foreign),
            ("null", "hub", Page::Foreign),
            ("http://hub", "", Page::Foreign),
        ] {
            assert_eq!(origins.page(&headers(origin, host)), page, "{origin} {host}");
        }
        let any = Origins::new(vec!["*".into()], Some(own()));
        assert!(matches!(any.page(&headers("null", "hub")), Page::Allowed(_)));
    }

    #[test]
    fn where_anyone_may_call_a_name_is_not_trusted() {
        let origins = Origins::new(Vec::new(), Some(own()));
        for (host, page) in [
            ("127.0.0.1:7070", Page::Own),
            ("[::1]:7070", Page::Own),
            ("[::1]", Page::Own),
            ("localhost:7070", Page::Own),
            ("10.0.0.1", Page::Own),
            ("hub.internal:7070", Page::Own),
            ("evil.example:7070", Page::Foreign),
            ("127.0.0.1.evil.example", Page::Foreign),
        ] {
            assert_eq!(origins.page(&headers(&format!("http://{host}"), host)), page, "{host}");
        }
    }

    #[test]
    fn a_foreign_page_may_change_nothing() {
        assert!(Page::Foreign.check(&Method::POST, false).is_err());
        assert!(Page::Foreign.check(&Method::GET, true).is_err(), "a WebSocket");
        assert!(Page::Foreign.check(&Method::GET, false).is_ok(), "which the browser keeps from it");
        assert!(Page::Own.check(&Method::POST, false).is_ok());
    }

    #[test]
    fn a_browser_is_told_only_where_it_may() {
        let mut asked = headers("https://a", "hub");
        asked.insert(header::ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("PUT"));
        asked.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static("authorization"));
        assert!(Page::Foreign.preflight(&Method::OPTIONS, &asked).is_none());
        let allowed = Page::Allowed(HeaderValue::from_static("https://a"));
        assert!(allowed.preflight(&Method::GET, &asked).is_none());
        let answer = allowed.preflight(&Method::OPTIONS, &asked).unwrap();
        assert_eq!(answer.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS], "authorization");
        assert_eq!(answer.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://a");
    }
}
