//! From text to an expression that is safe to evaluate: not too deep, without unknown names, and one that pays for
//! what it does.

use super::language::language;
use super::meter;
use super::pattern::Patterns;
use super::touched::{Root, Touched};
use super::{BadFilter, MAX_DEPTH};
use cel::Context;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo};
use cel::parser::Parser;

/// An expression of so many operations is quick, unless it repeats some.
const FEW_OPERATIONS: usize = 64;
/// Names of types, which are values.
const TYPES: [&str; 11] =
    ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type", "dyn"];

/// An expression that may be evaluated.
pub(super) struct Checked {
    pub expression: IdedExpr,
    pub patterns: Patterns,
    pub touched: Touched,
    /// How many operations it has.
    pub operations: usize,
    /// Whether it may take long.
    pub is_costly: bool,
}

/// Parses a text. That may go down deep: see [`threads`](super::threads).
pub(super) fn parse(root: Root, source: &str) -> Result<Checked, BadFilter> {
    let (mut expression, info) = Parser::new().parse_with_source_info(source).map_err(|errors| {
        let Some(error) = errors.errors.into_iter().next() else {
            return BadFilter::at_start("it is not CEL");
        };
        // Some errors of the parser are only there as what a debugger would show.
        let message = match error.msg {
            msg if msg.contains("recursion") => format!("it is more than {MAX_DEPTH} operations deep"),
            msg if msg.contains(" { ") => "this is not valid CEL".to_owned(),
            msg => msg,
        };
        BadFilter { message, line: error.pos.0.max(1) as usize, column: error.pos.1.max(1) as usize }
    })?;
    let (loop_names, patterns) = Default::default();
    let mut check = Check { root, info, loop_names, patterns, operations: 0, repeats: false };
    let touched = Touched::by(root, &expression);
    check.visit(&mut expression, 1)?;
    let is_costly = check.repeats || check.operations > FEW_OPERATIONS;
    let Check { patterns, operations, .. } = check;
    Ok(Checked { expression, patterns, touched, operations, is_costly })
}

/// A walk over an expression that refuses what is not safe, and has the rest pay for itself.
struct Check {
    root: Root,
    info: SourceInfo,
    /// What the loops around the present place have named.
    loop_names: Vec<String>,
    patterns: Patterns,
    operations: usize,
    /// Whether something in it is done again and again: a loop, or a search for a pattern.
    repeats: bool,
}

impl Check {
    fn bad(&self, at: &IdedExpr, message: String) -> BadFilter {
        let start = self.info.offset_for(at.id).map_or(0, |(start, _)| start as usize);
        let before = self.info.source.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        BadFilter {
            message,
            line: 1 + before.matches('\n').count(),
            column: 1 + before[line_start..].chars().count(),
        }
    }

    fn visit(&mut self, at: &mut IdedExpr, depth: usize) -> Result<(), BadFilter> {
        if depth > MAX_DEPTH {
            return Err(self.bad(at, format!("it is more than {MAX_DEPTH} operations deep")));
        }
        match &at.expr {
            Expr::Ident(name) => self.check_name(at, name)?,
            Expr::Call(call) => self.check_function(at, call)?,
            _ => {}
        }
        self.operations += 1;
        let depth = depth + 1;
        match &mut at.expr {
            Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::Unspecified => return Err(self.bad(at, "this is not valid CEL".to_owned())),
            Expr::Select(select) => self.visit(&mut select.operand, depth)?,
            Expr::List(list) => list.elements.iter_mut().try_for_each(|item| self.visit_item(item, depth))?,
            Expr::Call(_) => self.visit_call(at, depth)?,
            Expr::Map(map) => {
                map.entries.iter_mut().try_for_each(|entry| self.visit_entry(&mut entry.expr, depth))?;
            }
            Expr::Struct(value) => {
                value.entries.iter_mut().try_for_each(|entry| self.visit_entry(&mut entry.expr, depth))?;
            }
            Expr::Comprehension(_) => self.visit_loop(at, depth)?,
        }
        Ok(())
    }

    /// A value that is put into a list or a map.
    fn visit_item(&mut self, item: &mut IdedExpr, depth: usize) -> Result<(), BadFilter> {
        self.visit(item, depth)?;
        meter::copy(item);
        Ok(())
    }

    fn visit_entry(&mut self, entry: &mut EntryExpr, depth: usize) -> Result<(), BadFilter> {
        match entry {
            EntryExpr::StructField(field) => self.visit_item(&mut field.value, depth),
            EntryExpr::MapEntry(entry) => {
                self.visit_item(&mut entry.key, depth)?;
                self.visit_item(&mut entry.value, depth)
            }
        }
    }

    fn visit_call(&mut self, at: &mut IdedExpr, depth: usize) -> Result<(), BadFilter> {
        let Expr::Call(call) = &mut at.expr else { return Ok(()) };
        let target = call.target.iter_mut().map(|target| &mut **target);
        target.chain(&mut call.args).try_for_each(|part| self.visit(part, depth))?;
        let pattern = meter::pattern_of(call);
        self.repeats |= pattern.is_some();
        if let Some(pattern) = pattern
            && let Expr::Literal(LiteralValue::String(source)) = &pattern.expr
        {
            let index = self.patterns.add(source.inner()).map_err(|message| self.bad(pattern, message))?;
            meter::known_pattern(call, index);
        }
        meter::call(at.id, call);
        Ok(())
    }

    /// `exists`, `all`, `map` and the like: they go over names in their order, and every round is paid for.
    fn visit_loop(&mut self, at: &mut IdedExpr, depth: usize) -> Result<(), BadFilter> {
        let Expr::Comprehension(each) = &mut at.expr else { return Ok(()) };
        let work = meter::work_of_round(each);
        self.repeats = true;
        self.visit(&mut each.iter_range, depth)?;
        self.visit(&mut each.accu_init, depth)?;
        let names = self.loop_names.len();
        self.loop_names.extend([each.iter_var.clone(), each.accu_var.clone()]);
        self.loop_names.extend(each.iter_var2.clone());
        self.visit(&mut each.loop_cond, depth)?;
        match meter::parts_of_append(each) {
            Some(parts) => parts.into_iter().try_for_each(|part| self.visit_item(part, depth))?,
            None => self.visit(&mut each.loop_step, depth)?,
        }
        self.visit(&mut each.result, depth)?;
        self.loop_names.truncate(names);
        meter::rounds(each, work);
        Ok(())
    }

    fn check_name(&self, at: &IdedExpr, name: &str) -> Result<(), BadFilter> {
        if name == self.root.name()
            || TYPES.contains(&name)
            || self.loop_names.iter().any(|known| known == name)
        {
            return Ok(());
        }
        let reached = match self.root {
            Root::Event => "an event's fields are reached as event.payload, event.key, ...",
            Root::Payload => "the payload's fields are reached as payload.name",
        };
        Err(self.bad(at, format!("{name:?} is not known; {reached}")))
    }

    fn check_function(&self, at: &IdedExpr, call: &CallExpr) -> Result<(), BadFilter> {
        let name = &call.func_name;
        // A name that the standard library has cannot be given away again, which is how it shows.
        if meter::is_operator(name) || Context::with_env(language()).add_function(name, || true).is_err() {
            return Ok(());
        }
        let mut bad = self.bad(at, format!("function {name:?} is not known"));
        // The parser's place for a call is where its arguments begin; its name stands right before.
        let line = self.info.source.lines().nth(bad.line - 1).unwrap_or_default();
        let before: String = line.chars().take(bad.column - 1).collect();
        if before.ends_with(name.as_str()) {
            bad.column -= name.chars().count();
        }
        Err(bad)
    }
}
