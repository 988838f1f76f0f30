//! Placement of a layer's norms: before a branch, on its output, or on the residual after the addition.

use attnscope_families::description::{Described, NORM_PLACES, NormPart};

use super::groups::NormGroup;
use attnscope_families::description::names::norm_score;

/// One placement of a layer's norms.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    norms: [Option<NormPart>; 6],
    is_parallel: bool,
    score: i32,
    /// Share of the loss by which it must be better to be accepted.
    pub handicap: f64,
}

impl Placement {
    pub fn apply(&self, described: &mut Described) {
        described.norms = self.norms.clone();
        described.is_parallel = self.is_parallel;
    }

    /// Occupied places in words, for the user.
    pub fn words(described: &Described) -> String {
        let taken = NORM_PLACES.iter().zip(&described.norms);
        let taken = taken.filter_map(|(place, norm)| {
            let gain = norm.as_ref()?.gain.as_deref();
            Some(gain.map_or((*place).to_owned(), |gain| format!("{place} {gain}")))
        });
        let taken: Vec<String> = taken.collect();
        let block = if described.is_parallel {
            ", parallel"
        } else {
            ""
        };
        if taken.is_empty() {
            return format!("no norms{block}");
        }
        format!("{}{block}", taken.join(", "))
    }
}

/// Indices into [`NORM_PLACES`] for two norms, and whether branches are parallel; the usual placements first.
const TWO: [(&[usize], bool); 8] = [
    (&[0, 3], false),
    (&[2, 5], false),
    (&[1, 4], false),
    (&[0, 3], true),
    (&[0, 1], true),
    (&[0, 4], false),
    (&[1, 3], false),
    (&[0, 5], false),
];
const THREE: [(&[usize], bool); 4] = [
    (&[0, 1, 3], false),
    (&[0, 3, 4], false),
    (&[0, 3, 5], false),
    (&[0, 2, 3], false),
];
const FOUR: [(&[usize], bool); 3] = [
    (&[0, 1, 3, 4], false),
    (&[0, 2, 3, 5], false),
    (&[0, 1, 3, 4], true),
];
/// One norm may be used by both branches.
const ONE: [(&[usize], bool); 7] = [
    (&[0, 3], true),
    (&[0, 3], false),
    (&[0], false),
    (&[3], false),
    (&[5], false),
    (&[2], false),
    (&[0], true),
];

/// Handicap of placements that no known architecture has: a norm on the output of only one branch weakens a misread branch.
const ODD: f64 = 0.05;

/// Whether both branches are normalised alike: before each, after each, or both.
fn is_usual(places: &[usize], is_parallel: bool) -> bool {
    let (attn, mlp): (Vec<usize>, Vec<usize>) = places.iter().partition(|place| **place < 3);
    let mlp: Vec<usize> = mlp.into_iter().map(|place| place - 3).collect();
    attn == mlp || (is_parallel && mlp.is_empty() && attn == [0])
}

/// All placements of some norms, most likely first.
pub fn placements(groups: &[NormGroup]) -> Vec<Placement> {
    let shapes: &[(&[usize], bool)] = match groups.len() {
        0 => return without_gains(),
        1 => &ONE,
        2 => &TWO,
        3 => &THREE,
        4 => &FOUR,
        _ => return Vec::new(),
    };
    let mut all = Vec::new();
    for (nth, (places, is_parallel)) in shapes.iter().enumerate() {
        for order in orders(groups.len()) {
            let mut norms: [Option<NormPart>; 6] = Default::default();
            let mut score = -(nth as i32);
            for (at, place) in places.iter().enumerate() {
                let idx = order[at.min(order.len() - 1)];
                norms[*place] = Some(groups[idx].part.clone());
                // The order alone is a weak hint; names are stronger.
                score +=
                    2 * norm_score(NORM_PLACES[*place], &groups[idx].words) + i32::from(idx == at);
            }
            all.push(Placement {
                norms,
                is_parallel: *is_parallel,
                score,
                handicap: if is_usual(places, *is_parallel) {
                    0.0
                } else {
                    ODD
                },
            });
        }
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.score));
    all
}

/// Placements of norms without gains, which leave no tensors: none, or norms at the usual places.
fn without_gains() -> Vec<Placement> {
    let shapes: [(&[usize], bool); 5] = [
        (&[], false),
        (&[0, 3], false),
        (&[2, 5], false),
        (&[0, 3], true),
        (&[1, 4], false),
    ];
    let placement = |(nth, (places, is_parallel)): (usize, (&[usize], bool))| {
        let mut norms: [Option<NormPart>; 6] = Default::default();
        places
            .iter()
            .for_each(|place| norms[*place] = Some(NormPart::default()));
        Placement {
            norms,
            is_parallel,
            score: -(nth as i32),
            handicap: 0.0,
        }
    };
    shapes.into_iter().enumerate().map(placement).collect()
}

/// All permutations of 0..n.
pub fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for rest in orders(n - 1) {
        for at in 0..n {
            let mut order = rest.clone();
            order.insert(at, n - 1);
            all.push(order);
        }
    }
    all.sort();
    all
}
