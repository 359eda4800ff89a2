//! Which `Host` a request is for. Without authentication, this check is all that protects against DNS rebinding: anyone
//! can point a domain at this machine, and a browser then lets a page of that domain read the answers.

use axum::http::{HeaderMap, Uri, header};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum length of an unknown host in a message.
const TOLD_CHARS: usize = 100;

/// The hosts that requests may be for: IP addresses, `localhost`, and names that point only here.
#[derive(Debug, Clone)]
pub struct Hosts {
    names: Vec<String>,
    setting: &'static str,
}

impl Hosts {
    /// Addresses, `localhost` and `names`, which are the value of `setting`.
    pub fn new(names: &[String], setting: &'static str) -> Self {
        Self { names: names.iter().map(|name| without_dot(name).to_owned()).collect(), setting }
    }

    /// Whether `text` can be one of the names.
    pub fn is_name(text: &str) -> bool {
        let text = without_dot(text);
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    }

    /// Refuses a request for another host, or without one.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), String> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err("a request must have exactly one Host header".into());
        };
        // Both the request target and `Host` are checked, so that nobody can choose the more convenient one.
        let named = uri.authority().map(|authority| authority.as_str());
        match [Some(host.to_str().unwrap_or("?")), named].into_iter().flatten().find(|host| !self.knows(host))
        {
            None => Ok(()),
            Some(strange) => {
                let (strange, setting): (String, _) =
                    (strange.chars().take(TOLD_CHARS).collect(), self.setting);
                Err(format!(
                    "no token is asked for here, so only requests for an address, localhost or a name of {setting} are \
                     served, and {strange:?} is none of them: add it to {setting} if it is this server's own name"
                ))
            }
        }
    }

    /// Whether a host, with or without a port, is one of these.
    pub(crate) fn knows(&self, host: &str) -> bool {
        let end = match host.starts_with('[') {
            true => host.find(']').map(|end| end + 1),
            false => host.find(':'),
        };
        let (name, port) = host.split_at(end.unwrap_or(host.len()));
        let port_is_fine = port.is_empty()
            || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
        port_is_fine && self.knows_name(name)
    }

    fn knows_name(&self, name: &str) -> bool {
        if let Some(address) = name.strip_prefix('[') {
            return address.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        }
        let name = without_dot(name);
        name.parse::<Ipv4Addr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// A trailing dot only marks a name as fully qualified.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn check(target: &str, hosts: &[&str]) -> Result<(), String> {
        let known = Hosts::new(&["Hub.internal.".to_owned()], "server.hosts");
        let mut given = HeaderMap::new();
        for host in hosts {
            given.append(header::HOST, HeaderValue::from_str(host).unwrap());
        }
        known.check(&target.parse().unwrap(), &given)
    }

    #[test]
    fn addresses_localhost_and_known_names_are_served() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:7070",
            "10.1.2.3:",
            "[::1]",
            "[::1]:7070",
            "[fe80::1]:1",
            "localhost",
            "LocalHost:1",
            "localhost.",
            "localhost.:80",
            "hub.internal",
            "HUB.Internal.:7070",
        ] {
            check("/", &[host]).unwrap();
        }
        check("http://127.0.0.1:7070/", &["localhost"]).unwrap();
    }

    #[test]
    fn anything_else_is_not() {
        for host in [
            "",
            ".",
            ":7070",
            "evil.example",
            "evil.example:7070",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "hub.internal.evil",
            "hub",
            "localhost..",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "::1",
            "[::1",
            "::1]",
            "[127.0.0.1]",
            "[localhost]",
            "[::1]evil",
            "[::1]:x",
            "127.0.0.1:x",
            "127.0.0.1:1:1",
            "a@127.0.0.1",
            "127.0.0.1, evil.example",
            "localhost evil.example",
            "127.0.0.1/evil",
            "http://127.0.0.1",
        ] {
            let why = check("/", &[host]).unwrap_err();
            assert!(why.contains("server.hosts"), "{host}: {why}");
        }
        for (target, hosts) in [
            ("/", &[][..]),
            ("/", &["localhost", "localhost"]),
            ("/", &["localhost", "evil.example"]),
            ("http://evil.example/", &["localhost"]),
            ("http://localhost/", &["evil.example"]),
            ("http://evil@localhost/", &["localhost"]),
            ("http://localhost/", &[]),
        ] {
            check(target, hosts).unwrap_err();
        }
    }

    #[test]
    fn names_have_neither_scheme_nor_port() {
        assert!(["hub", "hub.internal.", "hub_1-a"].into_iter().all(Hosts::is_name));
        assert!(
            !["", ".", "hub:7070", "http://hub", "*.hub", "hub/", "h ub"].into_iter().any(Hosts::is_name)
        );
    }
}
