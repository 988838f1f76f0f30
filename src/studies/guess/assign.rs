//! Assigns tensors to parts of a model: every assignment that shapes allow, most likely by names first.

use attnscope_families::description::names::{Role, norm_score, score};
use attnscope_families::description::{Described, MapPart};

use super::combine::put_together;
use super::groups::{Groups, NormGroup};
use super::inventory::{Inventory, Tensor};
use super::maps::layer_maps;

/// Most assignments kept for tensors around the layers, for those inside layers, and for both combined.
const MOST_AROUND: usize = 6;
const MOST_INSIDE: usize = 8;
const MOST_TOGETHER: usize = 16;

/// Limits that the texts' ids set for a vocabulary.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub largest_id: u32,
    /// Number of tokens in the longest text.
    pub n_longest: usize,
}

/// One assignment of tensors to parts.
#[derive(Debug, Clone)]
pub struct Assignment {
    pub described: Described,
    /// Norms of a layer with the width of the residual, whose places are still open.
    pub norms: Vec<NormGroup>,
    /// Norms outside of the layers.
    pub around_norms: Vec<NormGroup>,
    pub score: i32,
    /// Tensors that are not assigned to any part.
    pub left: Vec<String>,
    pub d_model: usize,
    /// Number of query rows; `d_kv` is that of key rows.
    pub d_q: usize,
    pub d_kv: usize,
    /// Head width, if a shape determines it.
    pub d_head: Option<usize>,
}

/// All assignments of the tensors, most likely first.
///
/// # Errors
/// When there is none; says what is missing.
pub fn assignments(inventory: &Inventory, asked: Asked) -> Result<Vec<Assignment>, String> {
    let mut all = Vec::new();
    let mut reason = None;
    let (in_layer, around) = split(inventory);
    for d_model in widths(&in_layer, &around) {
        match of_width(inventory, (&in_layer, &around), asked, d_model) {
            Ok(found) => all.extend(found),
            Err(problem) => {
                reason.get_or_insert(problem);
            }
        }
    }
    all.sort_by_key(|one: &Assignment| std::cmp::Reverse(one.score));
    all.truncate(MOST_TOGETHER);
    if all.is_empty() {
        return Err(reason.unwrap_or_else(|| {
            "no table of tokens shares a width with the tensors of the layers".to_owned()
        }));
    }
    Ok(all)
}

/// Splits tensors into those of layers and those around them; by their names if no number repeats.
fn split(inventory: &Inventory) -> (Vec<Tensor>, Vec<Tensor>) {
    if !inventory.around.is_empty() {
        return (inventory.in_layer.clone(), inventory.around.clone());
    }
    let inner = [
        Role::Q,
        Role::K,
        Role::V,
        Role::Kv,
        Role::Qkv,
        Role::O,
        Role::Up,
        Role::Gate,
        Role::GateUp,
        Role::Down,
    ];
    let outer = [
        Role::Tokens,
        Role::Positions,
        Role::TokenTypes,
        Role::Unembed,
    ];
    let best = |roles: &[Role], tensor: &Tensor| {
        roles.iter().map(|role| score(*role, &tensor.words)).max()
    };
    let is_around = |tensor: &&Tensor| match tensor.shape.len() {
        1 => ["final_norm", "embed_norm"].iter().any(|place| {
            norm_score(place, &tensor.words)
                > norm_score("attn_pre", &tensor.words).max(norm_score("mlp_pre", &tensor.words))
        }),
        _ => best(&outer, tensor) > best(&inner, tensor),
    };
    inventory
        .in_layer
        .iter()
        .cloned()
        .partition(|tensor| !is_around(&tensor))
}

/// Possible residual widths, shared by tables around the layers and matrices inside them; the most frequent first.
fn widths(in_layer: &[Tensor], around: &[Tensor]) -> Vec<usize> {
    let matrices: Vec<&Tensor> = in_layer
        .iter()
        .filter(|tensor| tensor.shape.len() > 1)
        .collect();
    let mut found: Vec<(usize, usize)> = Vec::new();
    for tensor in around.iter().filter(|tensor| tensor.shape.len() == 2) {
        for width in &tensor.shape {
            if found.iter().any(|(_, known)| known == width) {
                continue;
            }
            let n_matrices = matrices
                .iter()
                .filter(|matrix| matrix.shape.contains(width))
                .count();
            let n_vectors = in_layer
                .iter()
                .filter(|tensor| tensor.shape == [*width])
                .count();
            if n_matrices > 0 {
                found.push((2 * n_matrices + n_vectors, *width));
            }
        }
    }
    found.sort_by_key(|(n, width)| (std::cmp::Reverse(*n), *width));
    found.into_iter().map(|(_, width)| width).take(3).collect()
}

fn of_width(
    inventory: &Inventory,
    (in_layer, around): (&[Tensor], &[Tensor]),
    asked: Asked,
    d_model: usize,
) -> Result<Vec<Assignment>, String> {
    let around_ways = around_ways(around, d_model, asked)?;
    let groups = Groups::of(in_layer);
    let inside = layer_maps(&groups, d_model, MOST_INSIDE);
    if inside.is_empty() {
        return Err(format!(
            "the matrices of a layer are none that attention and a feed-forward layer of width {d_model} are made of: {}",
            listed(in_layer)
        ));
    }
    let mut all = Vec::new();
    for maps in &inside {
        let norms = maps.norms(&groups, d_model);
        for way in &around_ways {
            all.push(put_together(inventory, way, maps, &norms, d_model));
        }
    }
    Ok(all)
}

fn listed(tensors: &[Tensor]) -> String {
    let matrices = tensors.iter().filter(|tensor| tensor.shape.len() > 1);
    let some: Vec<String> = matrices
        .take(8)
        .map(|tensor| format!("{} {:?}", tensor.name, tensor.shape))
        .collect();
    some.join(", ")
}

/// One assignment of the tensors around the layers.
#[derive(Clone)]
pub(super) struct Around {
    pub tokens: String,
    pub d_vocab: usize,
    pub positions: Option<String>,
    pub token_types: Option<String>,
    pub unembed: Option<MapPart>,
    pub logit_bias: Option<String>,
    pub head_dense: Option<MapPart>,
    pub norms: Vec<NormGroup>,
    pub left: Vec<String>,
    pub score: i32,
}

/// Vectors with a mean above this are gains near 1; below `AROUND_ZERO` in magnitude, they are not.
const AROUND_ONE: f32 = 0.6;
const AROUND_ZERO: f32 = 0.3;

fn around_ways(around: &[Tensor], d_model: usize, asked: Asked) -> Result<Vec<Around>, String> {
    use attnscope_families::description::Axis::{In, Out};
    let groups = Groups::of(around);
    let matrices: Vec<usize> = (0..groups.maps.len()).collect();
    let n_of = |idx: usize| {
        let shape = &groups.maps[idx].weight.shape;
        match shape.as_slice() {
            [n, width] if *width == d_model => Some((*n, false)),
            [width, n] if *width == d_model => Some((*n, true)),
            _ => None,
        }
    };
    // Token tables: rows as wide as the residual, with a row for every id.
    let tables: Vec<(usize, usize)> = matrices
        .iter()
        .filter_map(|idx| {
            let (n, is_turned) = n_of(*idx)?;
            (!is_turned && n > asked.largest_id as usize).then_some((*idx, n))
        })
        .collect();
    if tables.is_empty() {
        return Err(format!(
            "no table around the layers has rows of {d_model} values and one for id {}",
            asked.largest_id
        ));
    }
    let mut ways = Vec::new();
    for (tokens_idx, d_vocab) in &tables {
        let tokens = &groups.maps[*tokens_idx];
        let rest: Vec<usize> = matrices
            .iter()
            .copied()
            .filter(|idx| idx != tokens_idx)
            .collect();
        let heads: Vec<Option<usize>> = rest
            .iter()
            .copied()
            .filter(|idx| n_of(*idx).is_some_and(|(n, _)| n == *d_vocab))
            .map(Some)
            .chain([None])
            .collect();
        let positions: Vec<Option<usize>> = rest
            .iter()
            .copied()
            .filter(|idx| n_of(*idx).is_some_and(|(n, is_turned)| !is_turned && n > 1))
            .map(Some)
            .chain([None])
            .collect();
        for head in &heads {
            for position in &positions {
                if position.is_some() && position == head {
                    continue;
                }
                let mut score_of = score(Role::Tokens, &tokens.weight.words);
                // Prefer assignments that use every table, and none twice.
                score_of -= 6 * i32::from(head.is_none() && heads.len() > 1);
                let mut left = Vec::new();
                let mut way = Around {
                    tokens: tokens.weight.name.clone(),
                    d_vocab: *d_vocab,
                    positions: None,
                    token_types: None,
                    unembed: None,
                    logit_bias: tokens.bias.as_ref().map(|bias| bias.name.clone()),
                    head_dense: None,
                    norms: groups.norms.clone(),
                    left: Vec::new(),
                    score: 0,
                };
                for idx in &rest {
                    let map = &groups.maps[*idx];
                    let words = &map.weight.words;
                    let bias = map.bias.as_ref().map(|bias| bias.name.clone());
                    let Some((n, is_turned)) = n_of(*idx) else {
                        score_of -= 4;
                        left.push(map.weight.name.clone());
                        continue;
                    };
                    if Some(*idx) == *head {
                        score_of +=
                            score(Role::Unembed, words) - score(Role::Tokens, words).max(0) / 2;
                        let axes = if is_turned {
                            vec![In, Out]
                        } else {
                            vec![Out, In]
                        };
                        way.unembed = Some(MapPart {
                            axes,
                            ..MapPart::plain(map.weight.name.clone(), bias)
                        });
                    } else if Some(*idx) == *position {
                        score_of += score(Role::Positions, words);
                        // A table of few rows is more likely to hold segments than positions.
                        score_of -= 4 * i32::from(n < asked.n_longest.min(8));
                        way.positions = Some(map.weight.name.clone());
                    } else if n == d_model && way.head_dense.is_none() {
                        score_of += score(Role::HeadDense, words);
                        let axes = if is_turned {
                            vec![In, Out]
                        } else {
                            vec![Out, In]
                        };
                        way.head_dense = Some(MapPart {
                            axes,
                            ..MapPart::plain(map.weight.name.clone(), bias)
                        });
                    } else if n <= 16 && !is_turned && way.token_types.is_none() {
                        score_of += score(Role::TokenTypes, words);
                        way.token_types = Some(map.weight.name.clone());
                    } else {
                        score_of -= 4;
                        left.push(map.weight.name.clone());
                    }
                }
                for vector in &groups.vectors {
                    if vector.n_elements() == *d_vocab && way.logit_bias.is_none() {
                        way.logit_bias = Some(vector.name.clone());
                    } else {
                        left.push(vector.name.clone());
                    }
                }
                way.norms.retain(|norm| norm.width == d_model);
                // If the vocabulary is as wide as the residual, a vector around 0 among gains around 1 is not a gain.
                let has_gains = way.norms.iter().any(|norm| norm.mean > AROUND_ONE);
                let bias = way.norms.iter().position(|norm| {
                    has_gains
                        && norm.width == *d_vocab
                        && norm.part.bias.is_none()
                        && norm.mean.abs() < AROUND_ZERO
                });
                if let Some(at) = bias.filter(|_| way.logit_bias.is_none()) {
                    way.logit_bias = way.norms.remove(at).part.gain;
                }
                let others = groups.norms.iter().filter(|norm| norm.width != d_model);
                for norm in others {
                    if norm.width == *d_vocab && way.logit_bias.is_none() {
                        way.logit_bias = norm.part.gain.clone();
                    } else {
                        left.extend(norm.part.gain.clone());
                    }
                }
                way.score = score_of - 2 * left.len() as i32;
                way.left = left;
                ways.push(way);
            }
        }
    }
    ways.sort_by_key(|way| std::cmp::Reverse(way.score));
    ways.truncate(MOST_AROUND);
    Ok(ways)
}
