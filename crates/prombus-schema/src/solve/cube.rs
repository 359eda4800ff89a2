//! A case: what is claimed of a value of one kind, with the choices that are still open.

use super::{Claim, Solver};
use crate::{
    graph::{Atom, Kind, Lit, Node},
    json::Json,
};
use std::{collections::HashMap, rc::Rc};

/// A choice that is still open.
#[derive(Clone)]
pub enum Choice {
    /// One of these at least.
    Any(Rc<[Claim]>),
    /// Exactly one of these, or (`false`) none or several.
    One(Rc<[Claim]>, bool),
}

impl Choice {
    /// How many claims there are to choose from.
    pub fn size(&self) -> u64 {
        match self {
            Self::Any(claims) | Self::One(claims, _) => claims.len() as u64,
        }
    }
}

/// A case.
#[derive(Clone)]
pub struct Cube {
    pub kind: Kind,
    /// Nodes that are decided, and as what.
    decided: HashMap<u32, Claim>,
    /// What is claimed of the value itself.
    pub atoms: Vec<Claim>,
    pub choices: Vec<Choice>,
}

/// The case contradicts itself.
pub struct Contradiction;

impl Cube {
    pub fn new(kind: Kind) -> Self {
        Self { kind, decided: HashMap::new(), atoms: Vec::new(), choices: Vec::new() }
    }

    /// What a copy of it costs.
    pub fn size(&self) -> u64 {
        (self.decided.len() + self.atoms.len() + self.choices.len()) as u64
    }
}

impl Solver {
    /// Adds claims to a case, down to the statements about the value itself.
    pub fn claim(
        &mut self,
        cube: &mut Cube,
        claims: impl IntoIterator<Item = Claim>,
    ) -> Result<(), Contradiction> {
        let mut open: Vec<Claim> = claims.into_iter().collect();
        // What is drawn comes first, as it says more.
        open.sort_by_key(|claim| claim.drawn);
        while let Some(claim) = open.pop() {
            if !self.spend(1) {
                return Ok(());
            }
            match cube.decided.get(&claim.lit.node()) {
                Some(known) if known.lit != claim.lit => return Err(Contradiction),
                Some(known) if known.drawn || !claim.drawn => continue,
                _ => {}
            }
            cube.decided.insert(claim.lit.node(), claim);
            let negative = claim.lit.negative();
            match self.node(claim) {
                Node::And(lits) if negative => {
                    let any = lits.iter().map(|lit| claim.with(lit.not())).collect();
                    cube.choices.push(Choice::Any(any));
                }
                Node::And(lits) => open.extend(lits.iter().map(|lit| claim.with(*lit))),
                Node::One(lits) => {
                    let one = lits.iter().map(|lit| claim.with(*lit)).collect();
                    cube.choices.push(Choice::One(one, !negative));
                }
                Node::Atom(atom) => match at_kind(atom, negative, cube.kind) {
                    Some(true) => {}
                    Some(false) => return Err(Contradiction),
                    None => cube.atoms.push(claim),
                },
                Node::Ref(_) => {}
            }
        }
        Ok(())
    }

    /// Whether a claim is decided in a case already.
    fn decided(&mut self, cube: &Cube, lit: Lit) -> Option<bool> {
        if let Some(known) = cube.decided.get(&lit.node()) {
            return Some(known.lit == lit);
        }
        if lit == crate::graph::TRUE || lit == crate::graph::FALSE {
            return Some(lit == crate::graph::TRUE);
        }
        if self.graph.kinds(lit) & cube.kind.bit() == 0 {
            return Some(false);
        }
        (self.graph.kinds(lit.not()) & cube.kind.bit() == 0).then_some(true)
    }

    /// Takes what follows from the choices that leave none, until nothing more does.
    pub fn simplify(&mut self, cube: &mut Cube) -> Result<(), Contradiction> {
        loop {
            let mut forced = Vec::new();
            let choices = std::mem::take(&mut cube.choices);
            self.spend(choices.iter().map(Choice::size).sum());
            for choice in choices {
                let kept = match choice {
                    Choice::Any(claims) => self.simplify_any(cube, &claims, &mut forced)?,
                    Choice::One(claims, exactly) => self.simplify_one(cube, &claims, exactly, &mut forced)?,
                };
                cube.choices.extend(kept);
            }
            if forced.is_empty() {
                return Ok(());
            }
            self.claim(cube, forced)?;
        }
    }

    fn simplify_any(
        &mut self,
        cube: &Cube,
        claims: &Rc<[Claim]>,
        forced: &mut Vec<Claim>,
    ) -> Result<Option<Choice>, Contradiction> {
        let mut left = Vec::new();
        for claim in claims.iter() {
            match self.decided(cube, claim.lit) {
                Some(true) => return Ok(None),
                Some(false) => {}
                None => left.push(*claim),
            }
        }
        match left.as_slice() {
            [] => Err(Contradiction),
            [only] => {
                forced.push(*only);
                Ok(None)
            }
            _ if left.len() == claims.len() => Ok(Some(Choice::Any(claims.clone()))),
            _ => Ok(Some(Choice::Any(left.into()))),
        }
    }

    fn simplify_one(
        &mut self,
        cube: &Cube,
        claims: &Rc<[Claim]>,
        exactly: bool,
        forced: &mut Vec<Claim>,
    ) -> Result<Option<Choice>, Contradiction> {
        let (mut holding, mut left) = (Vec::new(), Vec::new());
        for claim in claims.iter() {
            match self.decided(cube, claim.lit) {
                Some(true) => holding.push(*claim),
                Some(false) => {}
                None => left.push(*claim),
            }
        }
        let not = |claim: &Claim| claim.with(claim.lit.not());
        match (exactly, holding.len(), left.as_slice()) {
            (true, 2.., _) | (true, 0, []) | (false, 1, []) => Err(Contradiction),
            (false, 2.., _) | (false, 0, []) | (true, 1, []) => Ok(None),
            (true, 1, left) => {
                forced.extend(left.iter().map(not));
                Ok(None)
            }
            (true, 0, [only]) | (false, 1, [only]) => {
                forced.push(*only);
                Ok(None)
            }
            (false, 0, [only]) => {
                forced.push(not(only));
                Ok(None)
            }
            (false, 1, left) => Ok(Some(Choice::Any(left.into()))),
            _ => {
                holding.extend(left);
                Ok(Some(Choice::One(holding.into(), exactly)))
            }
        }
    }

    /// Whether a value satisfies a choice.
    pub fn chosen(&mut self, choice: &Choice, value: &Json) -> Option<bool> {
        match choice {
            Choice::Any(claims) => {
                let mut known = Some(false);
                for claim in claims.iter() {
                    match self.graph.holds(claim.lit, value) {
                        Some(true) => return Some(true),
                        Some(false) => {}
                        None => known = None,
                    }
                }
                known
            }
            Choice::One(claims, exactly) => {
                let mut holding = 0;
                for claim in claims.iter() {
                    holding += u32::from(self.graph.holds(claim.lit, value)?);
                }
                Some((holding == 1) == *exactly)
            }
        }
    }
}

/// What an atom is for a kind about which it says nothing, or everything.
fn at_kind(atom: &Atom, negative: bool, kind: Kind) -> Option<bool> {
    let truth = match atom {
        Atom::Kinds(kinds) => kinds & kind.bit() != 0,
        Atom::Enum(listed) if listed.kinds() & kind.bit() == 0 => false,
        atom if atom.about() & kind.bit() == 0 => true,
        _ => return None,
    };
    Some(truth != negative)
}
