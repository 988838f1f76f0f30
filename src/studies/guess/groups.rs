//! Groups weights with their biases, and gains with theirs, by names and shapes.

use attnscope_families::description::NormPart;

use super::inventory::Tensor;
use attnscope_families::description::names::{is_bias, stem};

/// A matrix, or several fused in one tensor, with its bias.
#[derive(Debug, Clone)]
pub struct MapGroup {
    pub weight: Tensor,
    pub bias: Option<Tensor>,
}

/// A norm's gain, bias, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct NormGroup {
    pub part: NormPart,
    pub width: usize,
    pub words: Vec<String>,
    /// Mean of the gain.
    pub mean: f32,
}

impl NormGroup {
    pub fn n_vectors(&self) -> usize {
        usize::from(self.part.gain.is_some()) + usize::from(self.part.bias.is_some())
    }
}

/// Grouped tensors.
#[derive(Debug, Clone)]
pub struct Groups {
    pub maps: Vec<MapGroup>,
    pub norms: Vec<NormGroup>,
    /// Vectors that belong to no group.
    pub vectors: Vec<Tensor>,
}

impl Groups {
    pub fn of(tensors: &[Tensor]) -> Self {
        // A bias may be stored by head.
        let is_vector = |tensor: &&Tensor| {
            let inner = tensor.shape.iter().filter(|n| **n != 1).count();
            inner <= 1
                || (inner == 2 && is_bias(&tensor.words) && has_stem_of_larger(tensors, tensor))
        };
        let (vectors, matrices): (Vec<&Tensor>, Vec<&Tensor>) = tensors.iter().partition(is_vector);
        let mut free: Vec<Option<&Tensor>> = vectors.into_iter().map(Some).collect();
        let mut maps: Vec<MapGroup> = matrices
            .into_iter()
            .map(|weight| {
                let mut weight = weight.clone();
                weight.shape.retain(|n| *n != 1);
                MapGroup { weight, bias: None }
            })
            .collect();
        // Match biases by name first, then by unique shape.
        for map in &mut maps {
            let own = stem(&map.weight.words);
            let found = free.iter().position(|vector| {
                vector.is_some_and(|vector| stem(&vector.words) == own && fits(&map.weight, vector))
            });
            map.bias = found.and_then(|idx| free[idx].take()).cloned();
        }
        let mut norms: Vec<NormGroup> = Vec::new();
        let mut vectors = Vec::new();
        let rest: Vec<&Tensor> = free.into_iter().flatten().collect();
        let mut taken = vec![false; rest.len()];
        for (idx, one) in rest.iter().enumerate() {
            if taken[idx] {
                continue;
            }
            taken[idx] = true;
            let own = stem(&one.words);
            let other = (idx + 1..rest.len()).find(|other| {
                !taken[*other]
                    && stem(&rest[*other].words) == own
                    && rest[*other].n_elements() == one.n_elements()
            });
            let pair = other.map(|other| {
                taken[other] = true;
                rest[other]
            });
            match pair {
                Some(other) => {
                    // A gain is near 1 and named like one; a bias is near 0.
                    let one_is_bias = (is_bias(&one.words), one.mean.abs() < other.mean.abs());
                    let other_is_bias = is_bias(&other.words);
                    let swapped = match (one_is_bias.0, other_is_bias) {
                        (true, false) => true,
                        (false, true) => false,
                        _ => one_is_bias.1,
                    };
                    let (gain, bias) = if swapped {
                        (other, *one)
                    } else {
                        (*one, other)
                    };
                    norms.push(NormGroup {
                        part: NormPart {
                            gain: Some(gain.name.clone()),
                            bias: Some(bias.name.clone()),
                            ..NormPart::default()
                        },
                        width: gain.n_elements(),
                        words: gain.words.clone(),
                        mean: gain.mean,
                    });
                }
                None if is_bias(&one.words) && one.mean.abs() < 0.5 => {
                    // A bias with an unrelated name belongs to the only map that it fits, if there is exactly one.
                    let mut fitting = maps
                        .iter_mut()
                        .filter(|map| map.bias.is_none() && fits(&map.weight, one));
                    match (fitting.next(), fitting.next()) {
                        (Some(map), None) => map.bias = Some((*one).clone()),
                        _ => vectors.push((*one).clone()),
                    }
                }
                None => norms.push(NormGroup {
                    part: NormPart {
                        gain: Some(one.name.clone()),
                        ..NormPart::default()
                    },
                    width: one.n_elements(),
                    words: one.words.clone(),
                    mean: one.mean,
                }),
            }
        }
        Self {
            maps,
            norms,
            vectors,
        }
    }
}

/// Whether a larger matrix has the same name stem as a bias.
fn has_stem_of_larger(tensors: &[Tensor], bias: &Tensor) -> bool {
    let own = stem(&bias.words);
    tensors.iter().any(|other| {
        other.name != bias.name
            && other.n_elements() > bias.n_elements()
            && stem(&other.words) == own
    })
}

/// Whether a vector has one value for each possible output of a matrix.
fn fits(weight: &Tensor, vector: &Tensor) -> bool {
    let n = vector.n_elements();
    let Some(last) = weight.shape.last() else {
        return false;
    };
    let first = weight.shape[0];
    let is_matrix = weight.shape.len() == 2;
    if is_matrix {
        return n == first || n == *last;
    }
    let all = weight.n_elements();
    n > 0
        && all.is_multiple_of(n)
        && (vector.shape.iter().all(|n| weight.shape.contains(n)) || n == first || n == *last)
}
