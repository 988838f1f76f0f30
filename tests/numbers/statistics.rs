//! Every registered statistic, computed again in f64 from whole matrices of real runs, by its definition.

use attnscope_checks::stats::Stat;
use attnscope_compute::attention::Window;
use attnscope_spec::Stack;

use super::plain_math::{assert_near, dot, largest, mean, norm, variance};
use super::whole_run::Whole;

/// What decides how heads' values become a layer's.
#[derive(Debug, Clone, Copy)]
enum Gathered {
    Mean,
    Max,
    Min,
}

/// One head as whole matrices.
struct Head {
    tokens: Vec<u32>,
    /// Of real queries: which, and the keys each sees.
    queries: Vec<(usize, Vec<usize>)>,
    /// The keys that each real query would see if none were dropped.
    all_keys: Vec<(usize, Vec<usize>)>,
    real: Vec<bool>,
    /// [query, key]
    scores: Vec<Vec<f64>>,
    /// [query, key]
    pattern: Vec<Vec<f64>>,
    /// After rope. // [position, d_head]
    q: Vec<Vec<f64>>,
    k: Vec<Vec<f64>>,
    /// W_O z of this head alone. // [position, d_model]
    written: Vec<Vec<f64>>,
    /// ‖W_O v‖ of each key. // [position]
    carried: Vec<f64>,
    /// [position, d_model]
    resid_pre: Vec<Vec<f64>>,
    scale: f64,
    /// The logit of a learned sink.
    sink: Option<f64>,
}

impl Head {
    fn of(whole: &Whole, layer_idx: usize, head_idx: usize) -> Self {
        let block = &whole.model.spec.main_stack().blocks()[layer_idx];
        let spec = block.attention().expect("attention");
        let n = whole.tokens_real.len();
        let sees = |i: usize, j: usize| {
            let is_near = match spec.mask.window {
                Some(Window::Back(width)) => i < j + width,
                Some(Window::Around(reach)) => i.abs_diff(j) <= reach,
                Some(Window::Uneven { back, ahead }) => i <= j + back && j <= i + ahead,
                Some(Window::Chunk(width)) => i / width == j / width,
                Some(Window::Chunks { width, n_before }) => {
                    j / width <= i / width && i / width <= j / width + n_before
                }
                Some(Window::Blocks { .. }) => panic!("no case of this test has blocks"),
                None => true,
            };
            whole.tokens_real[j] && (!spec.mask.causal || j <= i) && is_near
        };
        let sinks = format!("model.layers.{layer_idx}.self_attn.sinks");
        let sinks = whole.model.checkpoint.tensors.get(&sinks);
        let sinks = sinks.map(|stored| stored.widen().expect("reads"));
        let matrix = |hook: &str| {
            let all = whole.rows(&format!("blocks.{layer_idx}.attn.{hook}"), n);
            all[head_idx * n..(head_idx + 1) * n].to_vec()
        };
        let kv_head_idx = head_idx * spec.n_kv_heads / spec.n_heads;
        let of_head = |hook: &str, n_heads: usize, head_idx: usize, width: usize| {
            let all = whole.rows(&format!("blocks.{layer_idx}.attn.{hook}"), n_heads * width);
            all.iter()
                .map(|row| row[head_idx * width..(head_idx + 1) * width].to_vec())
                .collect::<Vec<_>>()
        };
        let (d_head, d_model) = (spec.d_head, whole.d_model());
        let z = of_head("z", spec.n_heads, head_idx, spec.d_value);
        let v = of_head("v", spec.n_kv_heads, kv_head_idx, spec.d_value);
        let stored = whole
            .model
            .checkpoint
            .tensors
            .get(&block.own().expect("attention").projections.o.weight);
        let weight = stored
            .expect("the output projection")
            .widen()
            .expect("reads");
        let n_in = spec.n_heads * spec.d_value;
        let w_o = |c: usize, from: usize| {
            let at = if block.own().expect("attention").projections.o.is_input_major {
                from * d_model + c
            } else {
                c * n_in + from
            };
            f64::from(weight[at])
        };
        let write = |z: &Vec<f64>| -> Vec<f64> {
            let at = head_idx * spec.d_value;
            (0..d_model)
                .map(|c| z.iter().enumerate().map(|(i, z)| w_o(c, at + i) * z).sum())
                .collect()
        };
        let real_queries = (0..n).filter(|i| whole.tokens_real[*i]);
        let all_keys: Vec<(usize, Vec<usize>)> = real_queries
            .map(|i| (i, (0..n).filter(|j| sees(i, *j)).collect()))
            .collect();
        let scores = matrix("scores");
        // Which keys are kept is compared with transformers, in the oracle.
        let mut queries = all_keys.clone();
        if let Some(top) = spec.top_keys {
            for (i, keys) in &mut queries {
                let n_all = keys.len();
                keys.retain(|j| scores[*i][*j] != f64::NEG_INFINITY);
                assert_eq!(keys.len(), top.n.min(n_all), "query {i}");
            }
        }
        let head = Self {
            tokens: whole.tokens.clone(),
            queries,
            all_keys,
            real: whole.tokens_real.clone(),
            scores,
            pattern: matrix("pattern"),
            q: of_head("rot_q", spec.n_heads, head_idx, d_head),
            k: of_head("rot_k", spec.n_kv_heads, kv_head_idx, d_head),
            written: z.iter().map(write).collect(),
            carried: v.iter().map(|v| norm(&write(v))).collect(),
            resid_pre: whole.rows(&format!("blocks.{layer_idx}.resid_pre"), d_model),
            scale: 1.0 / (d_head as f64).sqrt(),
            sink: sinks.map(|sinks| f64::from(sinks[head_idx])),
        };
        head.is_what_it_should_be();
        head
    }

    /// The matrices that the statistics start from hold together: scores are scale·q·k, and the pattern their softmax.
    fn is_what_it_should_be(&self) {
        for (i, keys) in &self.queries {
            let total: f64 = keys.iter().map(|j| self.scores[*i][*j].exp()).sum();
            let total = total + self.sink.map_or(0.0, f64::exp);
            for j in 0..self.k.len() {
                let (score, p) = (self.scores[*i][j], self.pattern[*i][j]);
                if keys.contains(&j) {
                    assert!((score - self.raw(*i, j)).abs() < 1e-4);
                    assert!((p - score.exp() / total).abs() < 1e-5);
                } else {
                    assert!(score == f64::NEG_INFINITY && p == 0.0, "{i} {j}");
                }
            }
        }
    }

    fn raw(&self, i: usize, j: usize) -> f64 {
        self.scale * dot(&self.q[i], &self.k[j])
    }

    /// A figure of each real query that sees at least `n` keys.
    fn rows(&self, n: usize, figure: impl Fn(usize, &[usize]) -> f64) -> Vec<f64> {
        let rows = self.queries.iter().filter(|(_, keys)| keys.len() >= n);
        rows.map(|(i, keys)| figure(*i, keys)).collect()
    }

    /// A figure of each visible pair.
    fn pairs(&self, figure: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        let queries = self.queries.iter();
        queries
            .flat_map(|(i, keys)| keys.iter().map(|j| figure(*i, *j)).collect::<Vec<_>>())
            .collect()
    }

    fn entropy(&self, i: usize, keys: &[usize]) -> f64 {
        let p = keys.iter().map(|j| self.pattern[i][*j]);
        p.filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum()
    }

    /// p·‖W_O v‖ of the keys that a query sees.
    fn carried_by(&self, i: usize, keys: &[usize]) -> Vec<f64> {
        keys.iter()
            .map(|j| self.pattern[i][*j] * self.carried[*j])
            .collect()
    }

    fn real_positions(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.real.len()).filter(|i| self.real[*i])
    }

    fn var_predicted(&self) -> f64 {
        let d_head = self.q[0].len() as f64;
        let pairs = self.pairs(|i, j| dot(&self.q[i], &self.q[i]) * dot(&self.k[j], &self.k[j]));
        self.scale * self.scale * mean(pairs) / d_head
    }

    /// TransformerLens's `mul`: Σ A∘P / Σ A.
    fn marked_share(&self, is_marked: impl Fn(usize, usize) -> bool) -> (f64, Gathered) {
        let (mut on_marked, mut whole) = (0.0, 0.0);
        for (i, keys) in &self.queries {
            for j in keys {
                whole += self.pattern[*i][*j];
                on_marked += f64::from(u8::from(is_marked(*i, *j))) * self.pattern[*i][*j];
            }
        }
        (on_marked / whole, Gathered::Mean)
    }

    /// A statistic by its id, and how a layer gathers it; `None` for one that is computed per layer alone.
    fn statistic(&self, id: &str) -> Option<(f64, Gathered)> {
        let p = |i: usize, j: usize| self.pattern[i][j];
        let s = |i: usize, j: usize| self.scores[i][j];
        let mean_of = |values: Vec<f64>| (mean(values), Gathered::Mean);
        Some(match id {
            "entropy_relative" => mean_of(self.rows(2, |i, keys| {
                self.entropy(i, keys) / (keys.len() as f64).ln()
            })),
            "entropy" => mean_of(self.rows(1, |i, keys| self.entropy(i, keys))),
            "effective_keys" => mean_of(self.rows(1, |i, keys| {
                let mass: f64 = keys.iter().map(|j| p(i, *j)).sum();
                let shared = keys.iter().map(|j| p(i, *j) / mass);
                let entropy: f64 = shared.filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum();
                entropy.exp()
            })),
            "sink_mass" => match self.sink {
                None => (f64::NAN, Gathered::Mean),
                Some(sink) => mean_of(self.rows(1, |i, keys| {
                    let of_keys: f64 = keys.iter().map(|j| s(i, *j).exp()).sum();
                    sink.exp() / (sink.exp() + of_keys)
                })),
            },
            "top_k_recall" => {
                let pairs = self.queries.iter().zip(&self.all_keys);
                let rows = pairs.filter(|((_, kept), (_, all))| kept.len() < all.len());
                let sum = |i: usize, keys: &[usize]| -> f64 {
                    keys.iter().map(|j| self.raw(i, *j).exp()).sum()
                };
                mean_of(
                    rows.map(|((i, kept), (_, all))| sum(*i, kept) / sum(*i, all))
                        .collect(),
                )
            }
            "max_probability" => {
                mean_of(self.rows(2, |i, keys| largest(keys.iter().map(|j| p(i, *j)))))
            }
            "saturated_rows" => mean_of(self.rows(2, |i, keys| {
                let trace: f64 = keys.iter().map(|j| p(i, *j) * (1.0 - p(i, *j))).sum();
                f64::from(u8::from(trace < 1e-3))
            })),
            "empty_rows" => {
                let is_empty = |row: &&Vec<f64>| row.iter().all(|s| *s == f64::NEG_INFINITY);
                let n_empty = self.scores.iter().filter(is_empty).count();
                (n_empty as f64, Gathered::Max)
            }
            "first_key_mass" => {
                let first = self.real_positions().next().expect("a token");
                mean_of(self.rows(1, |i, _| p(i, first)))
            }
            "previous_mass" => {
                let queries: Vec<usize> = self.real_positions().collect();
                mean_of(queries.windows(2).map(|pair| p(pair[1], pair[0])).collect())
            }
            "duplicate_mass" => self.marked_share(|i, j| j < i && self.tokens[j] == self.tokens[i]),
            "induction_mass" => self.marked_share(|i, j| {
                let follows =
                    |before: usize| self.real[before] && self.tokens[before] == self.tokens[i];
                (1..=i).contains(&j) && follows(j - 1)
            }),
            "diagonal_mass" => mean_of(self.rows(1, |i, _| p(i, i))),
            "mean_distance" => mean_of(self.rows(1, |i, keys| {
                keys.iter().map(|j| p(i, *j) * i.abs_diff(*j) as f64).sum()
            })),
            "later_mass" => mean_of(self.rows(1, |i, _| self.pattern[i][i + 1..].iter().sum())),
            "document_mass" => mean_of(Vec::new()), // of recorded patterns alone
            "pad_mass" if !self.real.contains(&false) => mean_of(Vec::new()),
            "pad_mass" => mean_of(self.rows(1, |i, _| {
                let keys = self.pattern[i].iter().zip(&self.real);
                keys.map(|(p, real)| if *real { 0.0 } else { *p }).sum()
            })),
            "score_mean" => mean_of(self.pairs(s)),
            "score_std" => (variance(&self.pairs(s)).sqrt(), Gathered::Mean),
            "score_min" => (-largest(self.pairs(|i, j| -s(i, j))), Gathered::Min),
            "score_max" => (largest(self.pairs(s)), Gathered::Max),
            "score_row_norm" => mean_of(self.rows(1, |i, keys| {
                keys.iter().map(|j| s(i, *j) * s(i, *j)).sum::<f64>().sqrt()
            })),
            "score_row_variance" => mean_of(self.rows(2, |i, keys| {
                variance(&keys.iter().map(|j| s(i, *j)).collect::<Vec<_>>())
            })),
            "max_abs_score" => (
                largest(self.pairs(|i, j| self.raw(i, j).abs())),
                Gathered::Max,
            ),
            "score_var_observed" => (variance(&self.pairs(|i, j| self.raw(i, j))), Gathered::Mean),
            "score_var_predicted" => (self.var_predicted(), Gathered::Mean),
            "score_var_ratio" => {
                let observed = variance(&self.pairs(|i, j| self.raw(i, j)));
                (observed / self.var_predicted(), Gathered::Mean)
            }
            "q_norm" => mean_of(self.real_positions().map(|i| norm(&self.q[i])).collect()),
            "k_norm" => mean_of(self.real_positions().map(|j| norm(&self.k[j])).collect()),
            "qk_cosine" => {
                mean_of(self.pairs(|i, j| {
                    dot(&self.q[i], &self.k[j]) / (norm(&self.q[i]) * norm(&self.k[j]))
                }))
            }
            "head_output_norm" => mean_of(
                self.real_positions()
                    .map(|i| norm(&self.written[i]))
                    .collect(),
            ),
            "contribution_first" => {
                let first = self.real_positions().next().expect("a token");
                let of_first = self.rows(1, |i, _| p(i, first) * self.carried[first]);
                let of_all = self.rows(1, |i, keys| self.carried_by(i, keys).iter().sum());
                (
                    of_first.iter().sum::<f64>() / of_all.iter().sum::<f64>(),
                    Gathered::Mean,
                )
            }
            "contribution_total" => {
                mean_of(self.rows(1, |i, keys| self.carried_by(i, keys).iter().sum()))
            }
            "contribution_entropy" => mean_of(self.rows(1, |i, keys| {
                let carried = self.carried_by(i, keys);
                let sum: f64 = carried.iter().sum();
                let shares = carried.iter().map(|c| c / sum).filter(|share| *share > 0.0);
                shares.map(|share| -share * share.ln()).sum()
            })),
            "head_output_share" => {
                let share = |i: usize| norm(&self.written[i]) / norm(&self.resid_pre[i]);
                mean_of(self.real_positions().map(share).collect())
            }
            _ => return None,
        })
    }
}

/// A statistic that belongs to a layer alone.
fn of_layer(whole: &Whole, layer_idx: usize, id: &str) -> Option<f64> {
    let hook = match id {
        "resid_norm" => "resid_post",
        "attn_out_norm" => "attn_out",
        "mlp_out_norm" => "mlp_out",
        _ => return of_residual(whole, layer_idx, id),
    };
    let rows = whole.rows(&format!("blocks.{layer_idx}.{hook}"), whole.d_model());
    let real = rows.iter().zip(&whole.tokens_real);
    let real = real.filter(|(_, real)| **real);
    Some(mean(real.map(|(row, _)| norm(row))))
}

/// How alike the rows of a residual are, and its values.
fn of_residual(whole: &Whole, layer_idx: usize, id: &str) -> Option<f64> {
    let rows = whole.rows(&format!("blocks.{layer_idx}.resid_post"), whole.d_model());
    let real = rows.iter().zip(&whole.tokens_real);
    let rows: Vec<&Vec<f64>> = real
        .filter(|(_, real)| **real)
        .map(|(row, _)| row)
        .collect();
    let mut sizes: Vec<f64> = rows
        .iter()
        .flat_map(|row| row.iter().map(|v| v.abs()))
        .collect();
    sizes.sort_by(f64::total_cmp);
    Some(match id {
        "resid_spread" => {
            let column = |c: usize| mean(rows.iter().map(|row| row[c]));
            let middle: Vec<f64> = (0..whole.d_model()).map(column).collect();
            let apart = |row: &&Vec<f64>| -> f64 {
                row.iter()
                    .zip(&middle)
                    .map(|(v, m)| (v - m) * (v - m))
                    .sum()
            };
            let whole: f64 = rows.iter().map(|row| dot(row, row)).sum();
            (rows.iter().map(apart).sum::<f64>() / whole).sqrt()
        }
        "resid_cosine" => {
            let n = rows.len();
            let pairs = (0..n).flat_map(|i| (0..i).map(move |j| (i, j)));
            mean(pairs.map(|(i, j)| dot(rows[i], rows[j]) / (norm(rows[i]) * norm(rows[j]))))
        }
        "resid_max_abs" => sizes[sizes.len() - 1],
        "resid_median_abs" => sizes[sizes.len() / 2],
        _ => return None,
    })
}

/// Compares every statistic of every head and layer of a run.
pub fn compare(family: &str, n: usize, real: Option<Vec<bool>>) -> Whole {
    compare_with(family, None, n, real)
}

/// As `compare`, with a what-if.
pub fn compare_with(
    family: &str,
    what_if: Option<&str>,
    n: usize,
    real: Option<Vec<bool>>,
) -> Whole {
    let whole = Whole::run(family, what_if, n, real);
    assert_eq!(whole.layers.len(), whole.model.spec.n_layers(Stack::Only));
    for (layer_idx, layer) in whole.layers.iter().enumerate() {
        let n_heads = whole.model.spec.n_heads(Stack::Only, layer_idx);
        assert_eq!((layer.layer_idx, layer.heads.len()), (layer_idx, n_heads));
        let heads: Vec<Head> = (0..n_heads)
            .map(|head_idx| Head::of(&whole, layer_idx, head_idx))
            .collect();
        for stat in Stat::ALL.iter().copied() {
            let (id, statistic) = (stat.id(), stat.statistic());
            let place = format!("{family} layer {layer_idx} {id}");
            let found = layer.stats.of(stat);
            if !statistic.is_per_head() {
                let expected = of_layer(&whole, layer_idx, id);
                let expected = expected.unwrap_or_else(|| panic!("{id} is not computed here"));
                assert_near(found, expected, &place);
                assert!(layer.heads.iter().all(|head| head.stats.of(stat).is_nan()));
                continue;
            }
            let values = heads.iter().map(|head| head.statistic(id));
            let values: Option<Vec<(f64, Gathered)>> = values.collect();
            let values = values.unwrap_or_else(|| panic!("{id} is not computed here"));
            for (head_idx, (expected, _)) in values.iter().enumerate() {
                let found = layer.heads[head_idx].stats.of(stat);
                assert_near(found, *expected, &format!("{place} head {head_idx}"));
            }
            let of_heads = values.iter().map(|(value, _)| *value);
            let expected = match values[0].1 {
                Gathered::Mean => mean(of_heads),
                Gathered::Max => largest(of_heads),
                Gathered::Min => -largest(of_heads.map(|v| -v)),
            };
            assert_near(found, expected, &place);
        }
    }
    whole
}

#[test]
fn statistics_of_a_causal_model_are_what_they_say() {
    compare("gpt2", 33, None);
}

#[test]
fn statistics_with_shared_keys_and_rope_are_what_they_say() {
    // Longer than one row block.
    compare("llama", 90, None);
}

#[test]
fn statistics_of_a_bidirectional_model_are_what_they_say() {
    compare("bert", 30, None);
}

#[test]
fn statistics_with_learned_sinks_and_windows_are_what_they_say() {
    let whole = compare("gpt_oss_b", 40, None);
    let left = (0..40).map(|i| i >= 9).collect();
    compare("gpt_oss_b", 40, Some(left));
    for layer in &whole.layers {
        for head in &layer.heads {
            let taken = head.stats.of(Stat::SinkMass);
            assert!((0.001..0.999).contains(&taken), "{taken}");
        }
    }
}

#[test]
fn padding_counts_nowhere() {
    let whole = compare("gpt2", 33, Some((0..33).map(|i| i >= 5).collect()));
    let empty = whole.layers[0].heads[0].stats.of(Stat::EmptyRows);
    assert_eq!(empty, 5.0, "as many as there are pads on the left");
    compare("bert", 30, Some((0..30).map(|i| i < 21).collect()));
    compare("llama", 40, Some((0..40).map(|i| i % 7 != 3).collect()));
}

#[test]
fn a_single_token_has_the_statistics_that_one_key_allows() {
    let whole = Whole::run("gpt2", None, 1, None);
    let head = &whole.layers[0].heads[0].stats;
    for stat in [
        Stat::EntropyRelative,
        Stat::MaxProbability,
        Stat::PreviousMass,
        Stat::ScoreRowVariance,
    ] {
        assert!(head.of(stat).is_nan(), "{stat:?} is {}", head.of(stat));
    }
    assert_eq!(
        (head.of(Stat::Entropy), head.of(Stat::DiagonalMass)),
        (0.0, 1.0)
    );
    assert_eq!(
        (head.of(Stat::EffectiveKeys), head.of(Stat::ScoreStd)),
        (1.0, 0.0)
    );
}
