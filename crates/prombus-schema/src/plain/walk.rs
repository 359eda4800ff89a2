//! Going through a document once, from its first byte to its last.

use super::{
    ARRAY, BOOL, EXACT, FRACTION, INTEGER, Member, NULL, OBJECT, ObjectRule, Rule, STRING, Scalar, TextRule,
};
use crate::validator::DEPTH_LIMIT;
use jsonschema::Validator;
use serde_json::Value;
use std::borrow::Cow;

/// A word with this in each of its bytes.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of each byte.
const HIGH_BITS: u64 = ONES << 7;
/// The first character that may be in a text as it is.
const FIRST_OF_TEXT: u8 = b' ';

/// Whether a document is JSON and certainly taken. Without a rule it is read all the same: what could not be read as a tree
/// is not taken here.
pub(super) fn takes(rule: Option<&Rule>, document: &[u8]) -> bool {
    // Seen once for all texts in it.
    let Ok(text) = std::str::from_utf8(document) else { return false };
    let mut walk = Walk { text, at: 0, depth: 0 };
    walk.value(rule).is_some() && walk.next().is_none()
}

/// How far a document was read. What is not certainly taken, or not JSON, is `None` wherever it shows.
struct Walk<'d> {
    text: &'d str,
    at: usize,
    /// How many arrays and objects it is in.
    depth: usize,
}

impl<'d> Walk<'d> {
    /// The next byte that is not white space; it is not read yet.
    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn read(&mut self, byte: u8) -> Option<()> {
        certain(self.next()? == byte)?;
        self.at += 1;
        Some(())
    }

    fn value(&mut self, rule: Option<&Rule>) -> Option<()> {
        match self.next()? {
            b'"' => text(rule, &self.text()?),
            b'{' => self.object(rule),
            b'[' => self.array(rule),
            b'-' | b'0'..=b'9' => self.number(rule),
            b't' => self.word("true", rule, (BOOL, &Scalar::Bool(true))),
            b'f' => self.word("false", rule, (BOOL, &Scalar::Bool(false))),
            b'n' => self.word("null", rule, (NULL, &Scalar::Null)),
            _ => None,
        }
    }

    fn word(&mut self, word: &str, rule: Option<&Rule>, (types, scalar): (u8, &Scalar)) -> Option<()> {
        certain(self.text[self.at..].starts_with(word))?;
        self.at += word.len();
        certain(of_type(rule, types)?.is_none_or(|rule| rule.lists(|listed| listed == scalar)))
    }

    /// A text, of which the first quotation mark is next.
    fn text(&mut self) -> Option<Cow<'d, str>> {
        let rest = &self.text[self.at..];
        let end = 1 + plain_bytes(&rest.as_bytes()[1..]);
        match rest.as_bytes().get(end)? {
            b'"' => {
                self.at += end + 1;
                Some(Cow::Borrowed(&rest[1..end]))
            }
            // Few texts have escapes, and these are for a parser.
            b'\\' => {
                let mut texts = serde_json::Deserializer::from_str(rest).into_iter();
                let text = texts.next()?.ok()?;
                self.at += texts.byte_offset();
                Some(Cow::Owned(text))
            }
            _ => None,
        }
    }

    fn number(&mut self, rule: Option<&Rule>) -> Option<()> {
        let rest = &self.text[self.at..];
        let bytes = rest.as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let first = usize::from(bytes[0] == b'-');
        let mut end = first + digits(first);
        certain(end > first && (end == first + 1 || bytes[first] != b'0'))?;
        let integer = end;
        if bytes.get(end) == Some(&b'.') {
            let fraction = digits(end + 1);
            certain(fraction > 0)?;
            end += 1 + fraction;
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let signed = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + signed);
            certain(exponent > 0)?;
            end += 1 + signed + exponent;
        }
        self.at += end;
        let number = &rest[..end];
        // Zero below zero is one of those that only a double holds, as are those that are too large.
        if end == integer && number != "-0" {
            if let Ok(integer) = number.parse::<i64>() {
                return self::integer(rule, integer.unsigned_abs(), Some(integer), integer as f64);
            }
            if let Ok(integer) = number.parse::<u64>() {
                return self::integer(rule, integer, None, integer as f64);
            }
        }
        fraction(rule, number.parse().ok().filter(|number: &f64| number.is_finite())?)
    }

    /// Enters an array or an object, if it is not in too many.
    fn enter(&mut self) -> Option<()> {
        self.at += 1;
        self.depth += 1;
        certain(self.depth < DEPTH_LIMIT)
    }

    /// Whether something more is in an array or an object, behind something; otherwise it is left.
    fn has_more(&mut self, end: u8) -> Option<bool> {
        let byte = self.next()?;
        certain(byte == b',' || byte == end)?;
        self.at += 1;
        self.depth -= usize::from(byte == end);
        Some(byte != end)
    }

    /// Whether nothing is in an array or an object that was just entered; then it is left.
    fn is_empty(&mut self, end: u8) -> Option<bool> {
        let is_empty = self.next()? == end;
        if is_empty {
            self.at += 1;
            self.depth -= 1;
        }
        Some(is_empty)
    }

    fn array(&mut self, rule: Option<&Rule>) -> Option<()> {
        let rule = of_type(rule, ARRAY)?;
        certain(rule.is_none_or(|rule| rule.one_of.is_none()))?;
        let array = rule.and_then(|rule| rule.array.as_deref());
        let (items, mut count) = (array.and_then(|array| array.items.as_ref()), 0);
        self.enter()?;
        let mut has_more = !self.is_empty(b']')?;
        while has_more {
            self.value(items)?;
            count += 1;
            has_more = self.has_more(b']')?;
        }
        certain(array.is_none_or(|array| array.count.takes(count)))
    }

    fn object(&mut self, rule: Option<&Rule>) -> Option<()> {
        let rule = of_type(rule, OBJECT)?;
        certain(rule.is_none_or(|rule| rule.one_of.is_none()))?;
        let object = rule.and_then(|rule| rule.object.as_deref());
        // A name that comes twice counts once, with its last value; here each of its values has to be taken.
        let mut there = 0;
        self.enter()?;
        let mut has_more = !self.is_empty(b'}')?;
        while has_more {
            certain(self.next()? == b'"')?;
            let name = self.text()?;
            self.read(b':')?;
            let rule = match object.map(|object| (object, object.member(&name))) {
                Some((_, Some(member))) => {
                    there |= member.required;
                    member.rule.as_ref()
                }
                Some((object, None)) => object.rest.as_ref(),
                None => None,
            };
            self.value(rule)?;
            has_more = self.has_more(b'}')?;
        }
        certain(object.is_none_or(|object| there & object.required == object.required))
    }
}

impl ObjectRule {
    fn member(&self, name: &str) -> Option<&Member> {
        self.members.binary_search_by(|member| (*member.name).cmp(name)).ok().map(|at| &self.members[at])
    }
}

/// How many bytes of a text come before one that ends it, begins an escape, or must not be in it.
fn plain_bytes(bytes: &[u8]) -> usize {
    // Eight at a time: a byte below another one borrows from its highest bit. That may also show in bytes behind it, so the
    // first one counts.
    let below = |word: u64, byte: u8| word.wrapping_sub(ONES * u64::from(byte)) & !word;
    let (words, rest) = bytes.as_chunks();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let found = (is(b'"') | is(b'\\') | below(word, FIRST_OF_TEXT)) & HIGH_BITS;
        if found != 0 {
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..FIRST_OF_TEXT);
    bytes.len() - rest.len() + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// What a value of a type has to be besides.
fn of_type(rule: Option<&Rule>, types: u8) -> Option<Option<&Rule>> {
    match rule {
        Some(rule) if rule.types & types == 0 => None,
        rule => Some(rule),
    }
}

/// An integer, or nothing if it does not fit where it is listed.
fn integer(rule: Option<&Rule>, size: u64, listed: Option<i64>, number: f64) -> Option<()> {
    let Some(rule) = of_type(rule, INTEGER)? else { return Some(()) };
    let is_listed = rule.lists(|scalar| listed.is_some_and(|number| *scalar == Scalar::Integer(number)));
    certain(is_listed && rule.bounds.iter().all(|bound| bound.takes(number, size <= EXACT)))
}

fn fraction(rule: Option<&Rule>, number: f64) -> Option<()> {
    let Some(rule) = of_type(rule, FRACTION)? else { return Some(()) };
    certain(rule.one_of.is_none() && rule.bounds.iter().all(|bound| bound.takes(number, false)))
}

fn text(rule: Option<&Rule>, text: &str) -> Option<()> {
    let Some(rule) = of_type(rule, STRING)? else { return Some(()) };
    certain(rule.lists(|scalar| matches!(scalar, Scalar::Text(listed) if **listed == *text)))?;
    let Some(TextRule { chars, form }) = rule.text.as_deref() else { return Some(()) };
    let has_form = |form: &Validator| form.is_valid(&Value::String(text.to_owned()));
    certain(chars.takes(text.chars().count()) && form.as_ref().is_none_or(has_form))
}

fn certain(is_certain: bool) -> Option<()> {
    is_certain.then_some(())
}
