//! Which node of an upstream a request goes to: smooth weighted round robin. Pure.
//!
//! It knows weights and what a request has tried; it must never know addresses, connections or time.
//! Invariant: in any run of `sum(weights)` picks without exclusions every node is picked exactly as often as its weight says.

/// The nodes one request has already tried, by their index.
#[derive(Debug, Default, Clone)]
pub struct Tried(Vec<usize>);

impl Tried {
    /// Notes that `node` was tried.
    pub fn add(&mut self, node: usize) {
        if !self.contains(node) {
            self.0.push(node);
        }
    }

    /// Whether `node` was tried.
    pub fn contains(&self, node: usize) -> bool {
        self.0.contains(&node)
    }
}

/// Picks nodes by weight.
#[derive(Debug)]
pub struct Balancer {
    nodes: Vec<Weighted>,
}

#[derive(Debug)]
struct Weighted {
    weight: i64,
    current: i64,
}

/// Picks made in advance so that many gateways do not all begin with the same node.
const MAX_HEAD_START: usize = 64;

impl Balancer {
    /// A balancer over nodes with these weights. `start` shifts where the rotation begins (any number will do).
    ///
    /// A weight of 0 takes a node out, unless every weight is 0: then all count the same.
    pub fn new(weights: impl IntoIterator<Item = u32>, start: usize) -> Self {
        let mut nodes: Vec<Weighted> =
            weights.into_iter().map(|weight| Weighted { weight: i64::from(weight), current: 0 }).collect();
        if nodes.iter().all(|node| node.weight == 0) {
            for node in &mut nodes {
                node.weight = 1;
            }
        }
        let mut balancer = Self { nodes };
        let ahead = start % balancer.nodes.len().clamp(1, MAX_HEAD_START);
        for _ in 0..ahead {
            balancer.pick(&Tried::default());
        }
        balancer
    }

    /// The next node, or `None` when every node that may be picked was tried.
    ///
    /// A lone node is picked always: whatever its weight, and again after it was tried.
    pub fn pick(&mut self, tried: &Tried) -> Option<usize> {
        if self.nodes.len() == 1 {
            return Some(0);
        }
        let mut total = 0;
        let mut best: Option<usize> = None;
        for index in 0..self.nodes.len() {
            if self.nodes[index].weight == 0 || tried.contains(index) {
                continue;
            }
            let node = &mut self.nodes[index];
            node.current += node.weight;
            total += node.weight;
            if best.is_none_or(|best| self.nodes[index].current > self.nodes[best].current) {
                best = Some(index);
            }
        }
        let best = best?;
        self.nodes[best].current -= total;
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(weights: &[u32], start: usize, picks: usize) -> Vec<usize> {
        let mut balancer = Balancer::new(weights.iter().copied(), start);
        let mut counts = vec![0; weights.len()];
        for _ in 0..picks {
            counts[balancer.pick(&Tried::default()).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn spreads_by_weight_without_bursts() {
        let mut balancer = Balancer::new([5, 1, 1], 0);
        let order: Vec<usize> = (0..7).map(|_| balancer.pick(&Tried::default()).unwrap()).collect();
        assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn weight_zero_is_never_picked_beside_others() {
        assert_eq!(counts(&[0, 3, 0, 1], 0, 400), [0, 300, 0, 100]);
    }

    #[test]
    fn all_weights_zero_is_plain_rotation() {
        assert_eq!(counts(&[0, 0, 0], 0, 300), [100, 100, 100]);
    }

    #[test]
    fn a_lone_node_is_picked_whatever_its_weight_and_again() {
        let mut balancer = Balancer::new([0], 0);
        let mut tried = Tried::default();
        tried.add(0);
        assert_eq!(balancer.pick(&tried), Some(0));
    }

    #[test]
    fn a_tried_node_is_not_picked_again_and_the_last_ends_in_none() {
        let mut balancer = Balancer::new([1, 1, 0], 0);
        let mut tried = Tried::default();
        let first = balancer.pick(&tried).unwrap();
        tried.add(first);
        let second = balancer.pick(&tried).unwrap();
        assert_ne!(first, second);
        tried.add(second);
        assert_eq!(balancer.pick(&tried), None);
    }

    #[test]
    fn no_nodes_no_pick() {
        assert_eq!(Balancer::new([], 7).pick(&Tried::default()), None);
    }

    #[test]
    fn the_start_shifts_the_first_pick() {
        let firsts: std::collections::BTreeSet<usize> =
            (0..3).map(|start| Balancer::new([1, 1, 1], start).pick(&Tried::default()).unwrap()).collect();
        assert_eq!(firsts.len(), 3);
    }

    proptest! {
        #[test]
        fn a_full_round_honours_every_weight(
            weights in prop::collection::vec(0u32..20, 2..8),
            start in 0usize..100,
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let total: u32 = weights.iter().sum();
            let counts = counts(&weights, start, total as usize);
            let expected: Vec<usize> = weights.iter().map(|weight| *weight as usize).collect();
            prop_assert_eq!(counts, expected);
        }
    }
}
