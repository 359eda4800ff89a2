//! Walks through JSON that was found to be valid and has no white space, as payloads are: what is there only has to find its
//! way.

/// A walk.
#[derive(Debug, Clone)]
pub(crate) struct Walk<'a> {
    /// The whole text.
    pub text: &'a str,
    /// The present place.
    pub at: usize,
}

impl<'a> Walk<'a> {
    /// From the start of a text.
    pub fn through(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The byte at the present place.
    pub fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(b']')
    }

    /// The text from `start` to the present place.
    pub fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Goes behind a separator or the end of an array or object, and says whether that was the end.
    pub fn is_last(&mut self) -> bool {
        let last = self.peek() != b',';
        self.at += 1;
        last
    }

    /// Goes over a string, and says whether it is without escapes.
    pub fn skip_string(&mut self) -> bool {
        let mut is_plain = true;
        self.at += 1;
        loop {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            match memchr::memchr2(b'"', b'\\', rest) {
                Some(step) if rest.get(step) == Some(&b'\\') => {
                    is_plain = false;
                    self.at += step + 2;
                }
                Some(step) => {
                    self.at += step + 1;
                    return is_plain;
                }
                None => {
                    self.at = self.text.len();
                    return is_plain;
                }
            }
        }
    }

    /// Goes over a value without reading it.
    pub fn skip(&mut self) {
        let mut depth = 0usize;
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b',' | b'}' | b']' if depth == 0 => return,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }
}
