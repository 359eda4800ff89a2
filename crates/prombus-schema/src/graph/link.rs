//! From the formulas of documents to one graph: references become edges, and equal parts one node.

use super::{Atom, FALSE, Graph, Lit, Node, TRUE};
use std::collections::HashMap;

/// How many edges are looked at to find equal parts; where that is not enough, every node stays for itself.
const WORK_LIMIT: usize = 1_000_000;

/// The graph without references, and what the formulas in `roots` are there.
pub fn link(raw: Graph, built: &HashMap<u32, Lit>, roots: &[Lit]) -> (Graph, Vec<Lit>) {
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
fn targets(raw: &Graph, built: &HashMap<u32, Lit>) -> Vec<Lit> {
    let mut targets: Vec<Option<Lit>> = vec![None; raw.nodes.len()];
    for at in 0..raw.nodes.len() {
        let (mut lit, mut way) = (Lit::new(at as u32, false), Vec::new());
        // A way that is longer than there are nodes is a circle, which no schema has that was taken.
        let end = loop {
            if let Some(known) = targets[lit.node() as usize] {
                break known.signed(lit.negative());
            }
            match &raw.nodes[lit.node() as usize] {
                Node::Ref(site) if way.len() < raw.nodes.len() => {
                    way.push(lit);
                    lit = built.get(site).map_or(TRUE, |target| target.signed(lit.negative()));
                }
                _ => break lit,
            }
        };
        targets[lit.node() as usize] = Some(end.signed(lit.negative()));
        for passed in way {
            targets[passed.node() as usize] = Some(end.signed(passed.negative()));
        }
    }
    targets.into_iter().map(|target| target.unwrap_or(TRUE)).collect()
}

/// What a node is, and the classes of its children.
type Key = (u32, Vec<Lit>);

/// Tells nodes apart.
struct Classes<'r> {
    raw: &'r Graph,
    /// What nodes are without their children, as a number.
    shape: Vec<u32>,
    children: Vec<Box<[Lit]>>,
    class: Vec<u32>,
}

/// A number for every node, the same for equal ones.
fn classes(raw: &Graph, follow: &dyn Fn(Lit) -> Lit) -> Vec<u32> {
    let mut shapes: HashMap<Node, u32> = HashMap::new();
    let mut shape = |(at, node): (usize, &Node)| {
        let bare = match node {
            // Sets are told apart by what is in them and not by how many.
            Node::And(lits) if !lits.is_empty() => Node::And([FALSE].into()),
            Node::Ref(_) => Node::Ref(at as u32),
            node => rename(node, &|_| TRUE),
        };
        let next = shapes.len() as u32;
        *shapes.entry(bare).or_insert(next)
    };
    let shape: Vec<u32> = raw.nodes.iter().enumerate().map(&mut shape).collect();
    let follow_all = |node: &Node| children(node).iter().map(|lit| follow(*lit)).collect();
    let children = raw.nodes.iter().map(follow_all).collect();
    let mut classes = Classes { raw, class: vec![0; raw.nodes.len()], shape, children };
    let (settled, rest) = classes.leaves_first();
    classes.in_circles(settled, &rest);
    classes.class
}

impl Classes<'_> {
    fn key(&self, at: usize) -> Key {
        let class = |lit: &Lit| Lit::new(self.class[lit.node() as usize], lit.negative());
        let mut inner: Vec<Lit> = self.children[at].iter().map(class).collect();
        // What is opaque says something else of each of its formulas.
        if !matches!(self.raw.nodes[at], Node::Atom(_)) {
            inner.sort_unstable();
        }
        if matches!(self.raw.nodes[at], Node::And(_)) {
            inner.dedup();
        }
        (self.shape[at], inner)
    }

    /// Numbers the nodes from which no circle is reached, and answers how many numbers it used and which nodes are left.
    fn leaves_first(&mut self) -> (u32, Vec<usize>) {
        let count = self.raw.nodes.len();
        let mut waiting: Vec<usize> = self.children.iter().map(|children| children.len()).collect();
        let mut parents: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (at, children) in self.children.iter().enumerate() {
            children.iter().for_each(|lit| parents[lit.node() as usize].push(at));
        }
        let mut ready: Vec<usize> = (0..count).filter(|at| waiting[*at] == 0).collect();
        let mut keys: HashMap<Key, u32> = HashMap::new();
        while let Some(at) = ready.pop() {
            let next = keys.len() as u32;
            self.class[at] = *keys.entry(self.key(at)).or_insert(next);
            for parent in &parents[at] {
                waiting[*parent] -= 1;
                if waiting[*parent] == 0 {
                    ready.push(*parent);
                }
            }
        }
        (keys.len() as u32, (0..count).filter(|at| waiting[*at] > 0).collect())
    }

    /// Numbers the others: it begins with what they are without their children, and tells them apart by the numbers of
    /// their children until no more are told apart.
    fn in_circles(&mut self, settled: u32, rest: &[usize]) {
        for at in rest {
            self.class[*at] = settled + self.shape[*at];
        }
        let (mut count, mut work) = (0, 0);
        loop {
            let mut keys: HashMap<Key, u32> = HashMap::with_capacity(count);
            let mut next = Vec::with_capacity(rest.len());
            for at in rest {
                let fresh = settled + keys.len() as u32;
                next.push(*keys.entry(self.key(*at)).or_insert(fresh));
                work += self.children[*at].len() + 1;
            }
            for (at, class) in rest.iter().zip(next) {
                self.class[*at] = class;
            }
            if keys.len() == count {
                return;
            }
            count = keys.len();
            if work > WORK_LIMIT {
                for (number, at) in rest.iter().enumerate() {
                    self.class[*at] = settled + number as u32;
                }
                return;
            }
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
        Node::Atom(Atom::Opaque(_, _, lits)) => lits.to_vec(),
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
        Node::Atom(Atom::Opaque(why, what, lits)) => {
            let lits = lits.iter().map(|lit| renamed(*lit)).collect();
            Node::Atom(Atom::Opaque(why, what.clone(), lits))
        }
        Node::Atom(atom) => {
            Node::Atom(atom.inner().map_or_else(|| atom.clone(), |lit| atom.with_inner(renamed(lit))))
        }
        Node::Ref(site) => Node::Ref(*site),
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
