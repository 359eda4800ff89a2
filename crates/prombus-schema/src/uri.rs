//! References between URIs (RFC 3986, section 5.2), as far as identifiers of schemas need them.

/// The parts of a URI or a relative reference.
struct Parts<'u> {
    scheme: Option<&'u str>,
    authority: Option<&'u str>,
    path: &'u str,
    query: Option<&'u str>,
}

/// A reference without its fragment, and the fragment.
pub fn split(reference: &str) -> (&str, Option<&str>) {
    match reference.split_once('#') {
        Some((rest, fragment)) => (rest, Some(fragment)),
        None => (reference, None),
    }
}

/// What a reference without a fragment means where `base` is the base.
pub fn join(base: &str, reference: &str) -> String {
    if reference.is_empty() {
        return base.to_owned();
    }
    let (base, reference) = (parts(base), parts(reference));
    if reference.scheme.is_some() {
        return assemble(
            reference.scheme,
            reference.authority,
            &without_dots(reference.path),
            reference.query,
        );
    }
    if reference.authority.is_some() {
        return assemble(base.scheme, reference.authority, &without_dots(reference.path), reference.query);
    }
    if reference.path.is_empty() {
        return assemble(base.scheme, base.authority, base.path, reference.query.or(base.query));
    }
    let path = if reference.path.starts_with('/') {
        reference.path.to_owned()
    } else if base.authority.is_some() && base.path.is_empty() {
        format!("/{}", reference.path)
    } else {
        let folder = base.path.rfind('/').map_or("", |at| &base.path[..=at]);
        format!("{folder}{}", reference.path)
    };
    assemble(base.scheme, base.authority, &without_dots(&path), reference.query)
}

/// A fragment with its percent signs read.
pub fn unescaped(fragment: &str) -> String {
    let bytes = fragment.as_bytes();
    let (mut read, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| fragment.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                read.push(byte);
                at += 3;
            }
            None => {
                read.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(read).unwrap_or_else(|_| fragment.to_owned())
}

fn parts(uri: &str) -> Parts<'_> {
    let is_scheme = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    let (scheme, rest) = match uri.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
        _ => (None, uri),
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        }
        None => (None, rest),
    };
    Parts { scheme, authority, path, query }
}

fn assemble(scheme: Option<&str>, authority: Option<&str>, path: &str, query: Option<&str>) -> String {
    let scheme = scheme.map(|scheme| format!("{scheme}:")).unwrap_or_default();
    let authority = authority.map(|authority| format!("//{authority}")).unwrap_or_default();
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}{authority}{path}{query}")
}

fn without_dots(path: &str) -> String {
    if !path.contains("/.") && !path.starts_with('.') {
        return path.to_owned();
    }
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').collect();
    for (at, segment) in segments.iter().enumerate() {
        let last = at + 1 == segments.len();
        match *segment {
            "." | ".." => {
                if *segment == ".." && kept.len() > 1 {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    kept.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_against_their_base() {
        let base = "http://a/b/c/d?q";
        for (reference, meant) in [
            ("g", "http://a/b/c/g"),
            ("./g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d?y"),
            ("", "http://a/b/c/d?q"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("..", "http://a/b/"),
            ("urn:x:y", "urn:x:y"),
        ] {
            assert_eq!(join(base, reference), meant, "{reference}");
        }
        assert_eq!(unescaped("/a%25b%7E0"), "/a%b~0");
    }
}
