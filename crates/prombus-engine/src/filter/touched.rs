//! Which parts of an event an expression can look at: what it does not touch need not be read, and cannot make it fail.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use std::collections::BTreeMap;

/// What expressions are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// An event, with all that it has.
    Event,
    /// A payload by itself.
    Payload,
}

impl Root {
    /// Its name in expressions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Payload => "payload",
        }
    }
}

/// What of a value is touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Touched {
    /// All of it.
    Whole,
    /// These fields, where it is an object.
    Fields(BTreeMap<String, Touched>),
}

impl Touched {
    /// What an expression can touch of what it is over.
    pub fn by(root: Root, expression: &IdedExpr) -> Self {
        let mut touched = Self::Fields(BTreeMap::new());
        touched.collect(root, expression);
        touched
    }

    /// Whether nothing is.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Fields(fields) if fields.is_empty())
    }

    /// What is touched of a field.
    pub fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Whole => Some(self),
            Self::Fields(fields) => fields.get(name),
        }
    }

    fn add(&mut self, path: &[&str]) {
        match (&mut *self, path) {
            (Self::Whole, _) => {}
            (Self::Fields(_), []) => *self = Self::Whole,
            (Self::Fields(fields), [name, rest @ ..]) => {
                fields.entry((*name).to_owned()).or_insert(Self::Fields(BTreeMap::new())).add(rest);
            }
        }
    }

    fn collect(&mut self, root: Root, at: &IdedExpr) {
        if let Some(path) = path_of(root, at) {
            return self.add(&path);
        }
        match &at.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::Select(select) => self.collect(root, &select.operand),
            Expr::List(list) => list.elements.iter().for_each(|element| self.collect(root, element)),
            Expr::Call(call) => {
                call.target
                    .as_deref()
                    .into_iter()
                    .chain(&call.args)
                    .for_each(|part| self.collect(root, part));
            }
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.collect_entry(root, &entry.expr)),
            Expr::Struct(value) => {
                value.entries.iter().for_each(|entry| self.collect_entry(root, &entry.expr))
            }
            Expr::Comprehension(each) => {
                [&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result]
                    .into_iter()
                    .for_each(|part| self.collect(root, part));
            }
        }
    }

    fn collect_entry(&mut self, root: Root, entry: &EntryExpr) {
        match entry {
            EntryExpr::StructField(field) => self.collect(root, &field.value),
            EntryExpr::MapEntry(entry) => {
                self.collect(root, &entry.key);
                self.collect(root, &entry.value);
            }
        }
    }
}

/// The names on the way, where an expression is nothing but `event.a.b`, `event["a"].b` or `has(event.a.b)`.
fn path_of(root: Root, mut at: &IdedExpr) -> Option<Vec<&str>> {
    let mut path = Vec::new();
    loop {
        match &at.expr {
            Expr::Ident(name) if name == root.name() => break,
            Expr::Select(select) => {
                path.push(select.field.as_str());
                at = &select.operand;
            }
            Expr::Call(call) if call.func_name == operators::INDEX => match &call.args[..] {
                [of, IdedExpr { expr: Expr::Literal(LiteralValue::String(name)), .. }] => {
                    path.push(name.inner());
                    at = of;
                }
                _ => return None,
            },
            _ => return None,
        }
    }
    path.reverse();
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cel::parser::Parser;

    fn touched(source: &str) -> String {
        fn list(touched: &Touched, path: &str, out: &mut Vec<String>) {
            match touched {
                Touched::Whole => out.push(path.to_owned()),
                Touched::Fields(fields) => {
                    fields.iter().for_each(|(name, below)| list(below, &format!("{path}.{name}"), out));
                }
            }
        }
        let mut out = Vec::new();
        let expression = Parser::new().parse(source).unwrap();
        list(&Touched::by(Root::Event, &expression), "event", &mut out);
        out.join(" ")
    }

    #[test]
    fn what_is_touched_is_found() {
        for (source, expected) in [
            ("1 < 2", ""),
            ("event.payload.a > 1 && event.key == 'x'", "event.key event.payload.a"),
            ("event['payload'][\"a\"].b", "event.payload.a.b"),
            (
                "has(event.payload.a.b) ? event.payload.a.b : event.payload.c",
                "event.payload.a.b event.payload.c",
            ),
            ("event.payload.items[0].name", "event.payload.items"),
            ("event.payload[event.key]", "event.key event.payload"),
            ("event.payload.a + event.payload", "event.payload"),
            ("[event]", "event"),
            ("{event.ts: event.payload.a}", "event.payload.a event.ts"),
            ("event.payload.a.exists(x, x.b == event.payload.c)", "event.payload.a event.payload.c"),
            ("event.key.startsWith(event.payload.p)", "event.key event.payload.p"),
        ] {
            assert_eq!(touched(source), expected, "{source}");
        }
    }
}
