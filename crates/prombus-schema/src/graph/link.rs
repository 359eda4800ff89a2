//! From the formulas of documents to one graph: references become edges, and equal parts one node.

use super::{FALSE, Graph, Lit, Node, TRUE};
use crate::refs::Place;
use std::collections::HashMap;

/// How many edges are looked at to find equal parts; where that is not enough, every node stays for itself.
const WORK_LIMIT: usize = 8_000_000;

/// The graph without references, and what the formulas in `roots` are there.
pub fn link(raw: Graph, built: &HashMap<Place, Lit>, roots: &[Lit]) -> (Graph, Vec<Lit>) {
    let targets = targets(&raw, built);
    let follow = |lit: Lit| targets[lit.node() as usize].signed(lit.negative());
    let classes = classes(&raw, &follow);
    let mut graph = Graph::new();
    graph.patterns = raw.patterns;
    let order = numbering(&raw.nodes, &targets, &classes);
    let renamed = |lit: Lit| {
        let lit = follow(lit);
        Lit::new(order[&classes[lit.node() as usize]], lit.negative())
    };
    let mut nodes: Vec<Option<Node>> = vec![None; order.len()];
    for (at, node) in raw.nodes.iter().enumerate() {
        let place = order.get(&classes[at]).map(|place| *place as usize);
        let Some(slot) = place.and_then(|place| nodes.get_mut(place)).filter(|slot| slot.is_none()) else {
            continue;
        };
        if targets[at] == Lit::new(at as u32, false) {
            *slot = Some(rename(node, &renamed));
        }
    }
    for node in nodes.into_iter().flatten().skip(1) {
        graph.nodes.push(node);
    }
    let roots = roots.iter().map(|lit| renamed(*lit)).collect();
    graph.reindex();
    (graph, roots)
}

/// What every node stands for: itself, unless it is a reference.
fn targets(raw: &Graph, built: &HashMap<Place, Lit>) -> Vec<Lit> {
    let count = raw.nodes.len();
    let step = |lit: Lit| match &raw.nodes[lit.node() as usize] {
        Node::Ref(place) => built.get(place).map(|target| target.signed(lit.negative())),
        _ => None,
    };
    (0..count)
        .map(|at| {
            let mut lit = Lit::new(at as u32, false);
            // A chain of references that does not end within this many steps is a circle, which no schema has that was taken.
            for _ in 0..count {
                match step(lit) {
                    Some(next) => lit = next,
                    None => break,
                }
            }
            lit
        })
        .collect()
}

/// A number for every node, the same for equal ones: it begins with what nodes are without their children, and tells
/// nodes apart by the numbers of their children until no more are told apart.
fn classes(raw: &Graph, follow: &dyn Fn(Lit) -> Lit) -> Vec<u32> {
    let mut shapes: HashMap<Node, u32> = HashMap::new();
    let children: Vec<Box<[Lit]>> =
        raw.nodes.iter().map(|node| children(node).iter().map(|lit| follow(*lit)).collect()).collect();
    let shape: Vec<u32> = raw
        .nodes
        .iter()
        .enumerate()
        .map(|(at, node)| {
            let bare = rename(node, &|_| TRUE);
            // Sets are told apart by what is in them and not by how many.
            let bare = if let Node::And(lits) = &bare {
                if lits.is_empty() { bare } else { Node::And([FALSE].into()) }
            } else {
                bare
            };
            let bare = if let Node::Ref(_) = bare { Node::Ref(at) } else { bare };
            let next = shapes.len() as u32;
            *shapes.entry(bare).or_insert(next)
        })
        .collect();
    let mut class = shape.clone();
    let (mut count, mut work) = (shapes.len(), 0);
    loop {
        let mut keys: HashMap<(u32, Vec<Lit>), u32> = HashMap::with_capacity(count);
        let next: Vec<u32> = (0..raw.nodes.len())
            .map(|at| {
                let mut inner: Vec<Lit> = children[at]
                    .iter()
                    .map(|lit| Lit::new(class[lit.node() as usize], lit.negative()))
                    .collect();
                work += inner.len() + 1;
                inner.sort_unstable();
                if matches!(raw.nodes[at], Node::And(_)) {
                    inner.dedup();
                }
                let fresh = keys.len() as u32;
                *keys.entry((shape[at], inner)).or_insert(fresh)
            })
            .collect();
        let stable = keys.len() == count;
        count = keys.len();
        class = next;
        if stable {
            return class;
        }
        if work > WORK_LIMIT {
            return (0..raw.nodes.len() as u32).collect();
        }
    }
}

/// The numbers of the classes in the new graph; what is always so stays first.
fn numbering(nodes: &[Node], targets: &[Lit], classes: &[u32]) -> HashMap<u32, u32> {
    let mut order = HashMap::new();
    for at in 0..nodes.len() {
        if targets[at] == Lit::new(at as u32, false) {
            let next = order.len() as u32;
            order.entry(classes[at]).or_insert(next);
        }
    }
    order
}

fn children(node: &Node) -> Vec<Lit> {
    match node {
        Node::And(lits) | Node::One(lits) => lits.to_vec(),
        Node::Atom(atom) => atom.inner().into_iter().collect(),
        Node::Ref(_) => Vec::new(),
    }
}

fn rename(node: &Node, renamed: &dyn Fn(Lit) -> Lit) -> Node {
    let set = |lits: &[Lit], once: bool| {
        let mut lits: Vec<Lit> = lits.iter().map(|lit| renamed(*lit)).collect();
        lits.sort_unstable();
        if once {
            lits.dedup();
        }
        lits.into_boxed_slice()
    };
    match node {
        Node::And(lits) => Node::And(set(lits, true)),
        Node::One(lits) => Node::One(set(lits, false)),
        Node::Atom(atom) => {
            Node::Atom(atom.inner().map_or_else(|| atom.clone(), |lit| atom.with_inner(renamed(lit))))
        }
        Node::Ref(place) => Node::Ref(*place),
    }
}

impl Graph {
    /// Makes the nodes findable again, after they were put in place.
    fn reindex(&mut self) {
        self.index.clear();
        for (at, node) in self.nodes.iter().enumerate() {
            self.index.entry(node.clone()).or_insert(at as u32);
        }
    }
}
