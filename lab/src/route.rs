//! Which way packets go: the fewest hops, and among equals the link that was declared first. Only routers forward. The way
//! back is the way there, so a flow's acknowledgments meet the same links as its data.
//!
//! Breadth-first search over the routers alone: a dumbbell with 10,000 hosts costs as little as one with two.

use crate::scenario::{Link, Node, Scenario};

/// One link on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Index into [`Scenario::links`].
    pub link: usize,
    /// Along `from` to `to` of the link: its `forward` line. Otherwise `backward`.
    pub forward: bool,
}

/// Finds routes in one topology. Asking for pairs with a common end one after the other is cheap: the last tree is kept.
pub struct Routes<'a> {
    links: &'a [Link],
    /// Per node: its links, in order of declaration.
    links_of: Vec<Vec<usize>>,
    /// Per node: those of its links that lead to a router.
    to_routers: Vec<Vec<usize>>,
    /// The routers' distances from `root` (0 = not reached) and the link by which each is reached.
    tree: Vec<(u32, usize)>,
    root: Option<usize>,
    reached: Vec<usize>,
}

impl<'a> Routes<'a> {
    /// Prepares the search.
    pub fn new(nodes: &[Node], links: &'a [Link]) -> Routes<'a> {
        let mut routes = Routes {
            links,
            links_of: vec![Vec::new(); nodes.len()],
            to_routers: vec![Vec::new(); nodes.len()],
            tree: vec![(0, 0); nodes.len()],
            root: None,
            reached: Vec::new(),
        };
        for (i, link) in links.iter().enumerate() {
            for (near, far) in [(link.from, link.to), (link.to, link.from)] {
                routes.links_of[near].push(i);
                if nodes[far].router {
                    routes.to_routers[near].push(i);
                }
            }
        }
        routes
    }

    /// The way from node `from` to node `to`; `None` if there is none, empty if they are the same.
    pub fn between(&mut self, from: usize, to: usize) -> Option<Vec<Hop>> {
        let (root, leaf) = (from.min(to), from.max(to));
        if root == leaf {
            return Some(Vec::new());
        }
        self.grow(root);
        let mut hops = Vec::new();
        let mut node = leaf;
        while node != root {
            let link = if node == leaf { self.last_link(leaf)? } else { self.tree[node].1 };
            let towards_leaf = self.links[link].to == node;
            node = self.far(link, node);
            hops.push(Hop { link, forward: towards_leaf == (to == leaf) });
        }
        if to == leaf {
            hops.reverse();
        }
        Some(hops)
    }

    /// The first of `leaf`'s links with the shortest rest of the way to the root.
    fn last_link(&self, leaf: usize) -> Option<usize> {
        let distance = |link: &usize| match self.far(*link, leaf) {
            n if Some(n) == self.root => Some(0),
            n => Some(self.tree[n].0).filter(|d| *d > 0),
        };
        let reached = self.links_of[leaf].iter().filter_map(|l| Some((distance(l)?, *l)));
        reached.min_by_key(|(d, _)| *d).map(|(_, l)| l)
    }

    fn grow(&mut self, root: usize) {
        if self.root.replace(root) == Some(root) {
            return;
        }
        for node in self.reached.drain(..) {
            self.tree[node] = (0, 0);
        }
        let (mut near, mut done) = (root, 0);
        loop {
            for &link in &self.to_routers[near] {
                let far = self.far(link, near);
                if far != root && self.tree[far].0 == 0 {
                    self.tree[far] = (self.tree[near].0 + 1, link);
                    self.reached.push(far);
                }
            }
            match self.reached.get(done) {
                Some(&next) => near = next,
                None => return,
            }
            done += 1;
        }
    }

    fn far(&self, link: usize, near: usize) -> usize {
        let Link { from, to, .. } = self.links[link];
        if from == near { to } else { from }
    }
}

impl Scenario {
    /// The way from node `from` to node `to` (indices into [`Scenario::nodes`]); `None` if there is none. For many pairs use
    /// [`Routes`], which prepares the search once.
    pub fn route(&self, from: usize, to: usize) -> Option<Vec<Hop>> {
        Routes::new(&self.nodes, &self.links).between(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Line, Part};
    use narrows_core::units::{Bytes, Rate};
    use std::time::Duration;

    /// Names with a capital are routers.
    fn topology(links: &[(&str, &str)]) -> (Vec<Node>, Vec<Link>) {
        let mut nodes: Vec<Node> = Vec::new();
        let mut index = |name: &str| {
            nodes.iter().position(|n| n.name == name).unwrap_or_else(|| {
                let router = name.starts_with(char::is_uppercase);
                nodes.push(Node { name: name.into(), router, timer_phase: None });
                nodes.len() - 1
            })
        };
        let queue = Part { name: "fifo".into(), settings: Default::default(), inner: None };
        let line = Line {
            rate: Rate(1),
            delay: Duration::ZERO,
            mtu: Bytes(1500),
            framing: Default::default(),
            back_pressure: false,
            classes: Vec::new(),
            queue: queue.clone(),
            ack_window: queue,
            changes: Vec::new(),
        };
        let links = links
            .iter()
            .map(|(a, b)| Link {
                name: format!("{a}>{b}"),
                from: index(a),
                to: index(b),
                forward: line.clone(),
                backward: line.clone(),
            })
            .collect();
        (nodes, links)
    }

    fn way(links: &[(&str, &str)], from: &str, to: &str) -> Option<String> {
        let (nodes, links) = topology(links);
        let index = |name: &str| nodes.iter().position(|n| n.name == name).unwrap();
        let hops = Routes::new(&nodes, &links).between(index(from), index(to))?;
        let mut text = from.to_string();
        for hop in hops {
            let Link { from, to, .. } = links[hop.link];
            text += &nodes[if hop.forward { to } else { from }].name;
        }
        Some(text)
    }

    #[test]
    fn fewest_hops_and_then_the_first_declared() {
        let links = [("a", "R"), ("R", "S"), ("S", "T"), ("R", "T"), ("R", "U"), ("U", "T"), ("b", "T")];
        assert_eq!(way(&links, "a", "b").as_deref(), Some("aRTb"));
        let diamond = [("a", "R"), ("a", "S"), ("S", "b"), ("R", "b")];
        let there = way(&diamond, "a", "b").unwrap();
        assert_eq!(there, "aSb", "S-b was declared before R-b");
        assert_eq!(
            way(&diamond, "b", "a"),
            Some(there.chars().rev().collect()),
            "the way back is the way there"
        );
        let (nodes, links) = topology(&[("a", "b"), ("a", "b")]);
        assert_eq!(Routes::new(&nodes, &links).between(1, 0), Some(vec![Hop { link: 0, forward: false }]));
    }

    #[test]
    fn hosts_do_not_forward_and_a_cycle_of_routers_leads_nowhere() {
        assert_eq!(way(&[("a", "h"), ("h", "b")], "a", "b"), None);
        assert_eq!(way(&[("a", "R"), ("R", "S"), ("S", "T"), ("T", "R"), ("b", "U")], "a", "b"), None);
    }

    #[test]
    fn ten_thousand_hosts_at_two_routers() {
        let names: Vec<String> = (0..5000).flat_map(|i| [format!("s{i}"), format!("d{i}")]).collect();
        let nodes: Vec<Node> = ["R", "S"]
            .into_iter()
            .map(String::from)
            .chain(names)
            .enumerate()
            .map(|(i, name)| Node { name, router: i < 2, timer_phase: None })
            .collect();
        let (_, two) = topology(&[("R", "S")]);
        let link = |from, to| Link { from, to, ..two[0].clone() };
        let links: Vec<Link> =
            core::iter::once(link(0, 1)).chain((2..nodes.len()).map(|i| link(i % 2, i))).collect();
        let mut routes = Routes::new(&nodes, &links);
        for i in (2..nodes.len()).step_by(2) {
            let hop = |link, forward| Hop { link, forward };
            assert_eq!(routes.between(i, i + 1), Some(vec![hop(i - 1, false), hop(0, true), hop(i, true)]));
        }
    }
}
