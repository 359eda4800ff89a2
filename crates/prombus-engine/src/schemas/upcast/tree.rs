//! A payload that is being changed: text as it came, opened only on the way to what is changed. What nothing names is
//! written as it was read, byte for byte.
//!
//! Where a name comes twice, the last one counts, as everywhere; the others go when the name is dealt with.

use super::path::Step;
use crate::filter::{Allowance, STEP, looked_over};
use crate::json_walk::Walk;
use bytestring::ByteString;
use prombus_core::json::MAX_DEPTH;
use std::borrow::Cow;
use std::sync::Arc;

/// A piece of JSON text.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    /// Of the payload.
    Own(&'a str),
    /// That was made.
    Made(ByteString),
}

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Own(text) => text,
            Self::Made(text) => text,
        }
    }

    /// A part of it, which [`as_str`](Self::as_str) gave.
    fn slice(&self, part: std::ops::Range<usize>) -> Self {
        match self {
            Self::Own(text) => Self::Own(text.get(part).unwrap_or_default()),
            Self::Made(text) => Self::Made(text.slice_ref(text.get(part).unwrap_or_default())),
        }
    }
}

/// A value.
#[derive(Debug, Clone)]
pub enum Node<'a> {
    /// That nobody has looked into.
    Text(Text<'a>),
    Object(Vec<Member<'a>>),
    Array(Vec<Node<'a>>),
}

/// A field of an object.
#[derive(Debug, Clone)]
pub struct Member<'a> {
    /// With its quotation marks.
    name: Text<'a>,
    value: Node<'a>,
}

/// What may still be done to a payload.
#[derive(Debug)]
pub struct PayloadBudget {
    /// How many bytes may be added to it.
    pub bytes: usize,
    /// What all that is done may cost.
    pub allowance: Arc<Allowance>,
}

impl PayloadBudget {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes =
            self.bytes.checked_sub(bytes).ok_or_else(|| "it makes the payload too large".to_owned())?;
        Ok(())
    }

    /// Pays for work.
    pub fn charge(&self, work: u64) -> Result<(), String> {
        self.allowance.charge(work).map_err(|spent| spent.told())
    }
}

impl Member<'_> {
    /// A name that has no text (half a character) is none that a path could name.
    fn is(&self, name: &str) -> bool {
        let quoted = self.name.as_str();
        let Some(plain) = quoted.get(1..quoted.len().saturating_sub(1)) else { return false };
        if !plain.contains('\\') {
            return plain == name;
        }
        serde_json::from_str::<Cow<'_, str>>(quoted).is_ok_and(|read| read == name)
    }
}

/// The last member of that name. Earlier ones go.
fn find(members: &mut Vec<Member<'_>>, name: &str) -> Option<usize> {
    let last = members.iter().rposition(|member| member.is(name))?;
    let mut at = 0;
    let before = members.len();
    members.retain(|member| {
        at += 1;
        at > last || !member.is(name)
    });
    Some(last - (before - members.len()))
}

impl<'a> Node<'a> {
    /// A value of which nothing is known yet.
    pub fn of(text: &'a str) -> Self {
        Self::Text(Text::Own(text))
    }

    /// A value that was made.
    pub fn made(text: ByteString) -> Self {
        Self::Text(Text::Made(text))
    }

    /// Its members, which somebody is going to look at.
    fn object(&mut self, budget: &PayloadBudget) -> Result<Option<&mut Vec<Member<'a>>>, String> {
        budget.charge(STEP)?;
        if let Self::Text(text) = self {
            budget.charge(looked_over(text.as_str().len()))?;
            let Some(members) = open_object(text) else { return Ok(None) };
            *self = Self::Object(members);
        }
        let Self::Object(members) = self else { return Ok(None) };
        budget.charge(members.len() as u64)?;
        Ok(Some(members))
    }

    /// Its elements.
    fn array(&mut self, budget: &PayloadBudget) -> Result<Option<&mut Vec<Self>>, String> {
        budget.charge(STEP)?;
        if let Self::Text(text) = self {
            budget.charge(looked_over(text.as_str().len()))?;
            let Some(items) = open_array(text) else { return Ok(None) };
            *self = Self::Array(items);
        }
        let Self::Array(items) = self else { return Ok(None) };
        budget.charge(items.len() as u64)?;
        Ok(Some(items))
    }

    /// The value of a field of a field..., if it is there.
    pub fn get(&mut self, names: &[String], budget: &PayloadBudget) -> Result<Option<&mut Self>, String> {
        let [name, rest @ ..] = names else { return Ok(Some(self)) };
        let Some(members) = self.object(budget)? else { return Ok(None) };
        match find(members, name) {
            Some(at) => members[at].value.get(rest, budget),
            None => Ok(None),
        }
    }

    /// Puts a value at the end of a path, and makes the objects on the way. There is nothing to be done for elements of
    /// an array that is not there.
    pub fn set(&mut self, steps: &[Step], value: &Self, budget: &mut PayloadBudget) -> Result<(), String> {
        match steps {
            [] => {
                budget.take(value.len())?;
                *self = value.clone();
                Ok(())
            }
            [Step::Each, rest @ ..] => {
                let kind = self.kind();
                let expected = || format!("there is {kind} where an array is expected");
                let items = self.array(budget)?.ok_or_else(expected)?;
                items.iter_mut().try_for_each(|item| item.set(rest, value, budget))
            }
            [Step::Field(name), rest @ ..] => {
                let kind = self.kind();
                let expected = || format!("there is {kind} where an object with {name:?} is expected");
                let members = self.object(budget)?.ok_or_else(expected)?;
                match find(members, name) {
                    Some(at) => members[at].value.set(rest, value, budget),
                    None if rest.contains(&Step::Each) => Ok(()),
                    None => {
                        budget.take(name.len() + 4)?;
                        let mut made = if rest.is_empty() { Self::of("null") } else { Self::of("{}") };
                        made.set(rest, value, budget)?;
                        members.push(Member { name: quoted(name), value: made });
                        Ok(())
                    }
                }
            }
        }
    }

    /// Removes what is at the end of a path, wherever it is there.
    pub fn remove(&mut self, steps: &[Step], budget: &PayloadBudget) -> Result<(), String> {
        match steps {
            [] => {}
            [Step::Each] => {
                if let Some(items) = self.array(budget)? {
                    items.clear();
                }
            }
            [Step::Each, rest @ ..] => {
                let mut items = self.array(budget)?.into_iter().flatten();
                items.try_for_each(|item| item.remove(rest, budget))?;
            }
            [Step::Field(name)] => {
                if let Some(members) = self.object(budget)? {
                    members.retain(|member| !member.is(name));
                }
            }
            [Step::Field(name), rest @ ..] => {
                let members = self.object(budget)?.into_iter().flatten();
                let mut named = members.filter(|member| member.is(name));
                named.try_for_each(|member| member.value.remove(rest, budget))?;
            }
        }
        Ok(())
    }

    /// Goes to every element at the end of `steps`, as far as there are any.
    pub fn each(
        &mut self,
        steps: &[Step],
        budget: &mut PayloadBudget,
        change: &mut impl FnMut(&mut Self, &mut PayloadBudget) -> Result<(), String>,
    ) -> Result<(), String> {
        match steps {
            [] => change(self, budget),
            [Step::Each, rest @ ..] => {
                let mut items = self.array(budget)?.into_iter().flatten();
                items.try_for_each(|item| item.each(rest, budget, change))
            }
            [Step::Field(name), rest @ ..] => {
                let Some(members) = self.object(budget)? else { return Ok(()) };
                match find(members, name) {
                    Some(at) => members[at].value.each(rest, budget, change),
                    None => Ok(()),
                }
            }
        }
    }

    /// Takes a field away from its object.
    pub fn take(&mut self, names: &[String], budget: &PayloadBudget) -> Result<Option<Self>, String> {
        let Some((last, way)) = names.split_last() else { return Ok(None) };
        let Some(parent) = self.get(way, budget)? else { return Ok(None) };
        let Some(members) = parent.object(budget)? else { return Ok(None) };
        Ok(find(members, last).map(|at| members.remove(at).value))
    }

    /// Gives a field another name, in its place, if there is one of that name.
    pub fn rename(&mut self, from: &str, to: &str, budget: &mut PayloadBudget) -> Result<(), String> {
        let Some(members) = self.object(budget)? else { return Ok(()) };
        let Some(at) = find(members, from) else { return Ok(()) };
        if members.iter().any(|member| member.is(to)) {
            return Err(both(from, to));
        }
        budget.take(to.len())?;
        members[at].name = quoted(to);
        Ok(())
    }

    /// What it is, in words.
    fn kind(&self) -> &'static str {
        let text = match self {
            Self::Object(_) => "{",
            Self::Array(_) => "[",
            Self::Text(text) => text.as_str(),
        };
        match text.as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b'n') => "null",
            Some(b't' | b'f') => "a boolean",
            _ => "a number",
        }
    }

    /// How long its text is.
    pub fn len(&self) -> usize {
        let list = |lens: usize, count: usize| 2 + lens + count.saturating_sub(1);
        match self {
            Self::Text(text) => text.as_str().len(),
            Self::Array(items) => list(items.iter().map(Self::len).sum(), items.len()),
            Self::Object(members) => {
                let len = |member: &Member<'_>| member.name.as_str().len() + 1 + member.value.len();
                list(members.iter().map(len).sum(), members.len())
            }
        }
    }

    /// How deep it is nested.
    fn depth(&self) -> usize {
        match self {
            Self::Text(text) => text_depth(text.as_str()),
            Self::Array(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Object(members) => 1 + members.iter().map(|member| member.value.depth()).max().unwrap_or(0),
        }
    }

    /// Refuses a value that would be nested too deep at the end of so many steps.
    pub fn check_depth(&self, steps: usize, budget: &PayloadBudget) -> Result<(), String> {
        budget.charge(STEP + looked_over(self.len()))?;
        match self.depth() + steps > MAX_DEPTH {
            true => Err(format!("it makes the payload more than {MAX_DEPTH} deep")),
            false => Ok(()),
        }
    }

    /// Appends its text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_str().as_bytes()),
            Self::Array(items) => {
                out.push(b'[');
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Self::Object(members) => {
                out.push(b'{');
                for (n, Member { name, value }) in members.iter().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(name.as_str().as_bytes());
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// Why a field does not get another name.
pub fn both(from: &str, to: &str) -> String {
    format!("the payload has both {from} and {to}; remove one of them first")
}

fn quoted<'a>(name: &str) -> Text<'a> {
    let mut out = Vec::with_capacity(name.len() + 2);
    prombus_core::json::write_string(&mut out, name);
    Text::Made(String::from_utf8(out).unwrap_or_default().into())
}

/// The members of an object; `None` where the text is something else.
fn open_object<'a>(text: &Text<'a>) -> Option<Vec<Member<'a>>> {
    let mut members = Vec::new();
    open(text, b'{', |walk| {
        let start = walk.at;
        walk.skip_string();
        let name = text.slice(start..walk.at);
        walk.at += 1;
        let start = walk.at;
        walk.skip();
        members.push(Member { name, value: Node::Text(text.slice(start..walk.at)) });
    })?;
    Some(members)
}

/// The elements of an array; `None` where the text is something else.
fn open_array<'a>(text: &Text<'a>) -> Option<Vec<Node<'a>>> {
    let mut items = Vec::new();
    open(text, b'[', |walk| {
        let start = walk.at;
        walk.skip();
        items.push(Node::Text(text.slice(start..walk.at)));
    })?;
    Some(items)
}

/// Has `take` go over all parts of a list that begins with `first`.
fn open(text: &Text<'_>, first: u8, mut take: impl FnMut(&mut Walk<'_>)) -> Option<()> {
    let mut walk = Walk::through(text.as_str());
    if walk.peek() != first {
        return None;
    }
    walk.at += 1;
    if matches!(walk.peek(), b'}' | b']') {
        return Some(());
    }
    loop {
        take(&mut walk);
        if walk.is_last() {
            return Some(());
        }
    }
}

fn text_depth(text: &str) -> usize {
    let (mut walk, mut depth, mut deepest) = (Walk::through(text), 0usize, 0);
    while let Some(byte) = text.as_bytes().get(walk.at) {
        match byte {
            b'"' => {
                walk.skip_string();
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        walk.at += 1;
    }
    deepest
}
