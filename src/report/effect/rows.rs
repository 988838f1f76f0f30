//! The table of each measure: its rows, and how it was computed.

use attnscope_spec::Place;
use attnscope_studies::effect::{
    Ablation, Attribution, Circuits, Contribution, Estimate, Into, LensRow, Part, PartEffect,
    Patching, PlaceEffect, Replaced, Retrieval, Rollout, Sensitivity, ShareOf,
};

use super::columns::{
    of_ablation, of_attribution, of_circuits, of_contribution, of_lens, of_patching, of_retrieval,
    of_rollout, of_sensitivity,
};
use super::sheet::SheetRows;
use crate::table::{Cell, Table};

/// Labels for tokens and positions.
pub struct Labels<'a> {
    /// Text of a vocabulary token.
    pub of_token: &'a dyn Fn(u32) -> String,
    /// Label of each position in the predicting stack.
    pub positions: &'a [String],
    /// Label of each position in the encoder.
    pub source: &'a [String],
}

fn place_cells(place: Place, part: &str) -> Vec<Cell> {
    let name = place.to_string();
    vec![
        if name.is_empty() {
            Cell::Empty
        } else {
            Cell::Text(name)
        },
        Cell::text(part),
        place
            .stack
            .and_then(|stack| stack.label())
            .map_or(Cell::Empty, Cell::text),
        Cell::index(place.layer_idx),
        Cell::index(place.head_idx),
    ]
}

fn estimate_cells(estimate: Option<Estimate>) -> [Cell; 3] {
    let ends = estimate.and_then(|estimate| estimate.interval);
    [
        Cell::of(estimate.map(|estimate| estimate.mean)),
        Cell::of(ends.map(|(low, _)| low)),
        Cell::of(ends.map(|(_, high)| high)),
    ]
}

/// Effects of ablated parts, sorted by the largest change of loss, or of divergence.
pub fn ablation_sheet(ablation: &Ablation, asked: Option<String>) -> SheetRows {
    let columns = of_ablation();
    let mut parts: Vec<&PartEffect> = ablation
        .parts
        .iter()
        .filter(|effect| effect.n_prompts() > 0)
        .collect();
    let size = |effect: &PartEffect| effect.size().unwrap_or(f64::NEG_INFINITY);
    parts.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let rows = parts.into_iter().map(|effect| {
        let mut row = place_cells(effect.place, effect.part.label());
        row.extend(estimate_cells(effect.loss()));
        row.extend(estimate_cells(effect.kl()));
        row.push(Cell::of(effect.logit().map(|estimate| estimate.mean)));
        row.push(Cell::index(Some(effect.n_prompts())));
        row
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let with = match ablation.replaced {
        Replaced::Zero => "its output is replaced by zeros",
        Replaced::Mean => {
            "its output is replaced by its mean over all real positions of all prompts"
        }
        Replaced::Other => {
            "its output is replaced by that on the next prompt of equal length, position by position"
        }
    };
    let mut notes = vec![
        format!("ablation: {with}; everything after it runs again"),
        "intervals: 99 % bootstrap over prompts, or over the positions of a single prompt"
            .to_owned(),
    ];
    notes.extend(asked.map(|asked| format!("logit_change: of {asked}")));
    SheetRows {
        table: Table { columns, rows },
        notes,
        totals: Vec::new(),
    }
}

/// What a change does in each place, sorted by the largest change of loss, or of divergence.
pub fn sensitivity_sheet(found: &Sensitivity, what_ifs: &str) -> SheetRows {
    let places = found.places.iter().filter(|one| one.n_prompts() > 0);
    let mut places: Vec<&PlaceEffect> = places.collect();
    let size = |effect: &PlaceEffect| effect.size().unwrap_or(f64::NEG_INFINITY);
    places.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let rows = places.into_iter().map(|effect| {
        let part = match effect.place.head_idx {
            Some(_) => "head",
            None => "layer",
        };
        let mut row = place_cells(effect.place, part);
        row.extend(estimate_cells(effect.loss()));
        row.extend(estimate_cells(effect.kl()));
        row.push(Cell::of(effect.entropy()));
        row.push(Cell::index(Some(effect.n_prompts())));
        row
    });
    let whole = |name, estimate: Option<Estimate>| estimate.map(|found| (name, found.mean));
    let totals = [
        whole("loss change of the whole what-if", found.whole.loss()),
        whole("kl of the whole what-if", found.whole.kl()),
    ];
    SheetRows {
        table: Table {
            columns: of_sensitivity(),
            rows: rows.collect(),
        },
        notes: vec![
            format!(
                "sensitivity: {what_ifs} in one layer or one head at a time, everything else as it is"
            ),
            "intervals: 99 % bootstrap over prompts, or over the positions of a single prompt"
                .to_owned(),
        ],
        totals: totals.into_iter().flatten().collect(),
    }
}

/// Shares of a logit, in the order in which the parts run.
pub fn attribution_sheet(found: &Attribution, labels: &Labels<'_>, asked: String) -> SheetRows {
    let columns = of_attribution();
    let mut rows = Vec::new();
    let mut so_far = 0.0;
    for share in &found.shares {
        so_far += share.value;
        let cells = |key: Option<(usize, String)>, value: f64, so_far: Option<f64>| {
            let mut row = place_cells(share.place, share.of.label());
            row.push(Cell::index(key.as_ref().map(|(idx, _)| *idx)));
            row.push(key.map_or(Cell::Empty, |(_, token)| Cell::Text(token)));
            row.push(Cell::Number(value));
            row.push(Cell::of(so_far));
            row
        };
        rows.push(cells(None, share.value, Some(so_far)));
        let is_cross = share.place.stack.and_then(|stack| stack.label()) == Some("cross");
        let tokens = if is_cross {
            labels.source
        } else {
            labels.positions
        };
        for (key_idx, value) in share.by_key.iter().enumerate() {
            let token = tokens.get(key_idx).cloned().unwrap_or_default();
            rows.push(cells(Some((key_idx, token)), *value, None));
        }
    }
    let mut notes = vec![
        format!("direct logit attribution of {asked}"),
        "the scale of every norm on the way is frozen at what it was, so that shares sum to the logit; what a part does through later layers is not in its share (ablation has that)".to_owned(),
        "biases: every constant of output matrices, norms, embedding and unembedding; a feed-forward layer has its own biases".to_owned(),
    ];
    if let Some(cap) = found.softcap {
        notes.push(format!(
            "the model caps its logits at ±{cap} with a tanh, which is not linear: logit and shares are those before the cap"
        ));
    }
    let has_types = found
        .shares
        .iter()
        .any(|share| share.of == ShareOf::TokenTypeEmbedding);
    if has_types {
        notes.push("token types: all tokens are of type 0".to_owned());
    }
    SheetRows {
        table: Table { columns, rows },
        notes,
        totals: vec![("logit", found.logit), ("sum of shares", found.sum())],
    }
}

/// Needle retrieval of each head, the strongest copier first.
pub fn retrieval_sheet(found: &Retrieval) -> SheetRows {
    let mut heads: Vec<_> = found.heads.iter().collect();
    heads.sort_by(|a, b| {
        let looks = b.looks.total_cmp(&a.looks);
        b.retrieval.total_cmp(&a.retrieval).then(looks)
    });
    let rows = heads.into_iter().map(|head| {
        let mut row = place_cells(head.place, "head");
        let worst = head.by_depth.iter().copied().reduce(f64::min);
        row.push(Cell::of(
            Some(head.retrieval).filter(|share| !share.is_nan()),
        ));
        row.push(Cell::Number(head.looks));
        row.push(Cell::of(worst));
        row.push(Cell::Number(head.streaming));
        row
    });
    let depths: Vec<String> = found
        .depths
        .iter()
        .map(|depth| format!("{:.0} %", 100.0 * depth))
        .collect();
    let mut notes = vec![
        format!(
            "{} prompts of {} random tokens: a needle of a name and {} tokens at {} of the way, and the name again at the end; the needle's tokens are then given one by one",
            found.n_prompts,
            found.n_tokens,
            found.n_values,
            depths.join(", ")
        ),
        format!(
            "streaming: queries of the second half, the first {} tokens and the nearest {}",
            found.n_sinks, found.n_near
        ),
    ];
    if let Some(written) = found.written.filter(|written| *written < 0.5) {
        notes.push(format!(
            "the model writes {:.0} % of the needles: a low score may say that this model does not copy random tokens, not that its heads cannot",
            100.0 * written
        ));
    }
    SheetRows {
        table: Table {
            columns: of_retrieval(),
            rows: rows.collect(),
        },
        notes,
        totals: found
            .written
            .map(|share| ("share written", share))
            .into_iter()
            .collect(),
    }
}

/// Patches, the largest restored share first.
pub fn patching_sheet(patching: &Patching, labels: &Labels<'_>, asked: String) -> SheetRows {
    let columns = of_patching();
    let mut done: Vec<_> = patching
        .all
        .iter()
        .filter_map(|one| Some((one, patching.restored(one)?)))
        .collect();
    done.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let rows = done.into_iter().map(|(one, restored)| {
        let mut row = place_cells(one.place, one.part.label());
        let is_of_source = one.place.stack.and_then(|stack| stack.label()) == Some("encoder");
        let tokens = if is_of_source {
            labels.source
        } else {
            labels.positions
        };
        let token = one.position_idx.and_then(|idx| tokens.get(idx));
        row.push(Cell::index(one.position_idx));
        row.push(token.map_or(Cell::Empty, |token| Cell::Text(token.clone())));
        row.push(Cell::Number(restored));
        row.push(Cell::of(one.logit));
        row
    });
    SheetRows {
        table: Table {
            columns,
            rows: rows.collect(),
        },
        notes: vec![
            format!(
                "activation patching of {asked}: values of the clean run stand in the corrupted one"
            ),
            format!(
                "{} is the output of a head, {} and {} what a branch adds, {} the input of a layer",
                Part::Head.label(),
                Part::Attention.label(),
                Part::FeedForward.label(),
                Part::Residual.label()
            ),
        ],
        totals: vec![("clean", patching.clean), ("corrupted", patching.corrupted)],
    }
}

/// Lens predictions by position and depth.
pub fn lens_sheet(rows: &[LensRow], labels: &Labels<'_>, is_causal: bool) -> SheetRows {
    let columns = of_lens();
    let cells = rows.iter().map(|row| {
        let top = row
            .top
            .iter()
            .map(|(id, p)| format!("{} {p:.3}", (labels.of_token)(*id)));
        let at = labels.positions.get(row.position_idx).cloned();
        vec![
            Cell::index(Some(row.position_idx)),
            at.map_or(Cell::Empty, Cell::Text),
            Cell::index(Some(row.depth)),
            Cell::Number(row.kl),
            row.target
                .map_or(Cell::Empty, |id| Cell::Text((labels.of_token)(id))),
            Cell::index(row.rank),
            Cell::of(row.probability),
            Cell::Text(top.collect::<Vec<String>>().join(" · ")),
        ]
    });
    let target = if is_causal {
        "the target is the token that follows"
    } else {
        "the target is the token itself"
    };
    SheetRows {
        table: Table {
            columns,
            rows: cells.collect(),
        },
        notes: vec![format!(
            "logit lens: the final norm and the head on the residual of every depth; {target}"
        )],
        totals: Vec::new(),
    }
}

/// Rollout of the requested positions, and the mean over all positions.
pub fn rollout_sheet(stacks: &[Rollout], positions: &[usize], labels: &Labels<'_>) -> SheetRows {
    let columns = of_rollout();
    let mut rows = Vec::new();
    for stack in stacks {
        let tokens = if stack.stack.label() == Some("encoder") {
            labels.source
        } else {
            labels.positions
        };
        let here = positions.iter().filter(|idx| **idx < stack.n_tokens);
        let here: Vec<usize> = here.copied().collect();
        for (layer_idx, (of_layer, mean)) in stack.layers.iter().zip(&stack.means).enumerate() {
            let named = here.iter().map(|idx| Some(*idx)).zip(of_layer);
            for (position, row) in named.chain([(None, mean)]) {
                for (key_idx, value) in row.iter().enumerate() {
                    rows.push(vec![
                        stack.stack.label().map_or(Cell::Empty, Cell::text),
                        Cell::index(Some(layer_idx + 1)),
                        Cell::index(position),
                        Cell::index(Some(key_idx)),
                        tokens.get(key_idx).cloned().map_or(Cell::Empty, Cell::Text),
                        Cell::Number(f64::from(*value)),
                    ]);
                }
            }
        }
    }
    let mut notes = vec![
        "rollout: R = Â·R of the layer before, Â = (mean of all heads + I) / row sum; it looks at patterns alone, not at what values carry".to_owned(),
    ];
    if stacks.iter().any(|stack| stack.is_causal) {
        notes.push("a causal model concentrates rollout on the first token whatever its heads do: row 0 sees itself alone, and every layer adds to it".to_owned());
    }
    SheetRows {
        table: Table { columns, rows },
        notes,
        totals: Vec::new(),
    }
}

/// Contributions of heads, by prompt.
pub fn contribution_sheet(prompts: &[(String, Vec<Contribution>)]) -> SheetRows {
    let columns = of_contribution();
    let mut rows = Vec::new();
    for (id, all) in prompts {
        for one in all {
            let mut row = vec![Cell::Text(id.clone())];
            row.extend(place_cells(one.place, Part::Head.label()));
            row.extend(
                [
                    one.first_share,
                    one.first_attention,
                    one.entropy,
                    one.total,
                    one.added,
                ]
                .map(Cell::Number),
            );
            rows.push(row);
        }
    }
    SheetRows {
        table: Table { columns, rows },
        notes: vec![
            "contribution: attention weighed by the length of what it carries, α · ‖v W_O‖ (Kobayashi et al. 2020), before norms on the branch; a sink that writes nothing has a large share of the attention and a small one of this".to_owned(),
        ],
        totals: Vec::new(),
    }
}

/// Circuits of all heads, highest copying score first; for compositions, each head's best partner.
pub fn circuits_sheet(found: &Circuits) -> SheetRows {
    let columns = of_circuits();
    let mut heads: Vec<_> = found.heads.iter().collect();
    let score = |copying: Option<f64>| copying.unwrap_or(f64::NEG_INFINITY);
    heads.sort_by(|a, b| score(b.copying).total_cmp(&score(a.copying)));
    let rows = heads.into_iter().map(|head| {
        let mut row = place_cells(head.place, Part::Head.label());
        row.push(Cell::of(head.copying));
        row.push(Cell::of(head.positive_share));
        for ranks in [head.qk, head.ov] {
            row.extend([Cell::Number(ranks.effective), Cell::Number(ranks.stable)]);
        }
        for into in Into::ALL {
            let mut into_this = found.compositions.iter();
            let best = into_this.find(|one| one.to == head.place && one.into == into);
            row.push(best.map_or(Cell::Empty, |one| Cell::Text(one.from.to_string())));
            row.push(Cell::of(best.map(|one| one.score)));
        }
        row
    });
    SheetRows {
        table: Table {
            columns,
            rows: rows.collect(),
        },
        notes: found.notes.clone(),
        totals: Vec::new(),
    }
}
