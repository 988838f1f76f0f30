//! A comparison as a value: what differs, where first, and which layers differ on their own. It is filled step by step, so that
//! a screen can show partial results.

use attnscope_checks::stats::Values;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input};
use attnscope_run::{Progress, Randomness};
use attnscope_spec::{Model, Stack};

use super::causes::Cause;
use super::engines::OneDevice;
use super::exchange::Measure;
use super::floors::Floors;
use super::gap::{Axes, HookGap};
use super::head_map::HeadMap;
use super::knob::KnobKind;
use super::knobs::{KnobDifference, knob_differences};
use super::lockstep::{HeadSums, ROW_BYTES, Ran, Sides, run};
use super::map::LayerMap;
use super::predictions::PredictionDifference;
use super::suspects::{renamed, suspects};
use super::weights::{WeightDifferences, compare_mapped, compare_names};

/// Options of a comparison.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Relative difference tolerated at every hook; if unset, derived from the precision of the weights.
    pub tolerance: Option<f64>,
    pub map: LayerMap,
    /// Bytes of A's scores and patterns to keep per layer.
    pub row_bytes: usize,
    /// Whether to keep maps of the heads that differ most.
    pub keeps_maps: bool,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            tolerance: None,
            map: LayerMap::default(),
            row_bytes: ROW_BYTES,
            keeps_maps: false,
        }
    }
}

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    A,
    B,
}

/// Difference at one hook of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct HookDifference {
    pub hook: Hook,
    /// `None` for logits, or for the last hidden state of models without a head.
    pub stack: Option<Stack>,
    /// The layer of A; `None` after the last layer of a stack.
    pub layer_idx: Option<usize>,
    /// ‖a − b‖/‖a‖ over all prompts; infinite where a value is finite on one side only.
    pub relative: f64,
    pub max_abs: f64,
    /// Relative difference up to which the hook counts as the same.
    pub tolerance: f64,
    pub is_same: bool,
    /// The head that differs most, for hooks with heads; a KV head for keys and values.
    pub head_idx: Option<usize>,
    /// Position of that head's largest difference.
    pub query_idx: Option<usize>,
    pub key_idx: Option<usize>,
    /// The side with a NaN or an infinity where the other has none; `query_idx` and `key_idx` then locate the first one.
    pub nonfinite: Option<Side>,
    /// Number of cells visible under only one side's mask.
    pub n_one_sided: usize,
    /// ‖a − b‖/‖a‖ of each head; empty for hooks without heads.
    pub heads: Vec<f64>,
}

impl HookDifference {
    /// Returns the hook's name. The encoder's output is `last_hidden_state`. After the last layer it is `logits`, although
    /// last hidden states are compared if a model has no head.
    pub fn name(&self) -> &'static str {
        match (self.hook, self.stack) {
            (Hook::Logits, Some(_)) => "last_hidden_state",
            (hook, _) => hook.name(),
        }
    }

    pub(super) fn new(
        (hook, stack, layer_idx): (Hook, Option<Stack>, Option<usize>),
        gap: &HookGap,
        tolerance: f64,
    ) -> Self {
        let total = gap.total();
        let worst = gap.worst_head();
        let of_worst = worst.map(|idx| &gap.heads[idx]);
        let broken = of_worst.and_then(|head| head.broken);
        let at = of_worst.map(|head| broken.map_or(head.at, |(query, key, _)| (query, key)));
        let relative = total.relative();
        Self {
            hook,
            stack,
            layer_idx,
            relative,
            max_abs: if total.broken.is_some() {
                f64::INFINITY
            } else {
                total.worst
            },
            tolerance,
            is_same: relative <= tolerance && total.broken.is_none() && total.n_one_sided == 0,
            head_idx: worst.filter(|_| gap.has_heads),
            query_idx: at
                .filter(|_| gap.axes != Axes::Keys)
                .map(|(query, _)| query),
            key_idx: match gap.axes {
                Axes::Cells => at.map(|(_, key)| key),
                Axes::Keys => at.map(|(key, _)| key),
                Axes::Queries => None,
            },
            nonfinite: broken.map(|(.., is_of_a)| if is_of_a { Side::A } else { Side::B }),
            n_one_sided: total.n_one_sided,
            heads: if gap.has_heads {
                gap.heads
                    .iter()
                    .map(super::gap::HeadGap::relative)
                    .collect()
            } else {
                Vec::new()
            },
        }
    }
}

/// A layer of B that differs when it runs on A's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IsolatedLayer {
    pub stack: Stack,
    /// Its counterpart in A.
    pub layer_idx: usize,
    /// Largest relative difference of the layer's outputs, or if those agree, of its other hooks.
    pub relative: f64,
}

/// One head on both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadDifference {
    pub stack: Stack,
    pub layer_idx: usize,
    pub head_idx: usize,
    /// Mean Jensen–Shannon divergence of the patterns' rows, in nats; NaN if the patterns are unknown.
    pub divergence: f64,
    /// Statistics of A and B; `None` if they were not computed.
    pub stats: Option<[Values; 2]>,
    /// Patterns of A and B; `None` if they are unknown, or if other heads differ more.
    pub maps: Option<Box<[HeadMap; 2]>>,
}

/// One prompt on both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptDifference {
    pub id: String,
    /// Mean next-token loss of A and B, in nats; `None` if unknown.
    pub loss: [Option<f64>; 2],
    pub predictions: Option<PredictionDifference>,
    pub heads: Vec<HeadDifference>,
}

/// Comparison of two sides, as far as it has run.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub floors: Floors,
    /// Knobs that differ; those that change the computation come first.
    pub knobs: Vec<KnobDifference>,
    pub weights: WeightDifferences,
    /// Whether the tensors of both models have been compared.
    knows_weights: bool,
    /// In the order of execution; empty until a prompt has run.
    pub hooks: Vec<HookDifference>,
    /// Layers of B that differ on their own, in the order of execution; other layers only inherit earlier differences.
    pub isolated: Vec<IsolatedLayer>,
    pub prompts: Vec<PromptDifference>,
    /// Index in `knobs` of the knob that prevents running the two side by side.
    pub prevented_by: Option<usize>,
    /// Layers of A and of B that the layer map leaves out.
    pub left_out: [Vec<usize>; 2],
    /// Randomness noted in recordings of A and of B, such as dropout; empty for a side that runs here.
    pub randomness: [Randomness; 2],
    /// Whether the user mapped layers: models of different depths are then the same if the mapped layers are.
    is_mapped: bool,
    /// Hook differences summed over the prompts so far.
    gaps: Vec<super::lockstep::HookSums>,
}

impl Comparison {
    /// Creates an empty comparison.
    pub(super) fn empty(floors: Floors) -> Self {
        Self {
            floors,
            knobs: Vec::new(),
            weights: WeightDifferences::default(),
            knows_weights: false,
            hooks: Vec::new(),
            isolated: Vec::new(),
            prompts: Vec::new(),
            prevented_by: None,
            left_out: Default::default(),
            randomness: Default::default(),
            is_mapped: false,
            gaps: Vec::new(),
        }
    }

    /// Starts a comparison with the knobs of two models, without reading weights.
    pub fn of_knobs(a: &Model, b: &Model, options: &CompareOptions) -> Self {
        let floors = Floors::of_models(a, b, options.tolerance);
        let knobs = knob_differences(&a.spec, &b.spec);
        let prevents = |knob: &KnobDifference| {
            // Models of different depth and width are comparable if the user maps their layers.
            knob.kind == KnobKind::Shape && (options.map.is_identity() || !may_be_mapped(knob))
        };
        Self {
            left_out: options.map.left_out(&a.spec, &b.spec),
            is_mapped: !options.map.is_identity(),
            prevented_by: knobs.iter().position(prevents),
            knobs,
            ..Self::empty(floors)
        }
    }

    /// Compares the tensors of both, before anything runs. `told` receives the number done and the total.
    ///
    /// # Errors
    /// When a tensor cannot be read, or the pace stops it.
    pub fn compare_weights(
        &mut self,
        a: &Model,
        b: &Model,
        options: &CompareOptions,
        told: &mut dyn FnMut(usize, usize),
        pace: &dyn Pace,
    ) -> Result<()> {
        self.weights = if self.prevented_by.is_some() {
            compare_names(a, b, pace)?
        } else {
            let to_b = |key: &str| renamed(&a.spec, &options.map, key);
            compare_mapped(a, b, &self.floors, &to_b, told, pace)?
        };
        let computes_alike = self.knobs.iter().all(|knob| knob.kind == KnobKind::Label);
        self.floors.follows_rounding = computes_alike && self.weights.is_rounding();
        if !self.weights.has_rounding {
            self.floors.without_rounding();
        }
        self.knows_weights = self.prevented_by.is_none();
        Ok(())
    }

    /// Runs one prompt through both models in lockstep and adds the result. Each side counts the prompt's positions by its own
    /// rule.
    ///
    /// # Errors
    /// When the pace stops it, a tensor differs from its spec, or the device fails.
    pub fn run_prompt<O: Ops>(
        &mut self,
        ops: &O,
        (a, b): (&Model, &Model),
        (id, inputs): (&str, (Input, Input)),
        options: &CompareOptions,
        tell: &dyn Fn(Progress),
        pace: &dyn Pace,
    ) -> Result<()> {
        let both = [inputs];
        let suspects = suspects((&a.spec, &b.spec), &options.map, &self.weights, &both);
        let sides = Sides {
            a,
            b,
            map: &options.map,
            floors: &self.floors,
            suspects: &suspects,
            // Tolerated rounding still changes values.
            differing: (self.knows_weights && !self.weights.has_rounding)
                .then_some(&self.weights.layers),
            row_bytes: options.row_bytes,
            keeps_maps: options.keeps_maps,
            measure: Measure::Sums,
        };
        let [(input_a, input_b)] = &both;
        let ran = run(&OneDevice(ops), &sides, (input_a, input_b), tell, pace)?;
        self.take(id, ran);
        Ok(())
    }

    /// Adds the result of a prompt.
    pub(super) fn take(&mut self, id: &str, ran: Ran) {
        for sums in ran.hooks {
            let at = (sums.hook, sums.stack, sums.layer_idx);
            let known = self
                .gaps
                .iter_mut()
                .find(|known| (known.hook, known.stack, known.layer_idx) == at);
            match known {
                Some(known) => {
                    known.gap.join(&sums.gap);
                    known.tolerance = known.tolerance.max(sums.tolerance);
                }
                None => self.gaps.push(sums),
            }
        }
        self.hooks = self
            .gaps
            .iter()
            .map(|sums| {
                let at = (sums.hook, sums.stack, sums.layer_idx);
                HookDifference::new(at, &sums.gap, sums.tolerance)
            })
            .collect();
        for (stack, layer_idx, relative) in ran.isolated {
            let known = self
                .isolated
                .iter_mut()
                .find(|known| (known.stack, known.layer_idx) == (stack, layer_idx));
            match known {
                Some(known) => known.relative = known.relative.max(relative),
                None => self.isolated.push(IsolatedLayer {
                    stack,
                    layer_idx,
                    relative,
                }),
            }
        }
        let heads = ran.heads.into_iter().map(|head: HeadSums| HeadDifference {
            stack: head.stack,
            layer_idx: head.layer_idx,
            head_idx: head.head_idx,
            divergence: head.divergence,
            stats: head.stats,
            maps: head.maps,
        });
        self.prompts.push(PromptDifference {
            id: id.to_owned(),
            loss: ran
                .predictions
                .as_ref()
                .map_or([None; 2], |found| found.loss),
            predictions: ran.predictions,
            heads: heads.collect(),
        });
    }

    /// Returns the first hook, in the order of execution, beyond its tolerance.
    pub fn first(&self) -> Option<&HookDifference> {
        self.hooks.iter().find(|hook| !hook.is_same)
    }

    /// Returns the first hook with a NaN or an infinity on one side only.
    pub fn nonfinite(&self) -> Option<&HookDifference> {
        self.hooks.iter().find(|hook| hook.nonfinite.is_some())
    }

    /// Returns the side recorded in training mode with random numbers, if something differs: the difference may come from
    /// dropout alone.
    pub fn random_side(&self) -> Option<(Side, &Randomness)> {
        self.first()?;
        let mut sides = [Side::A, Side::B].into_iter().zip(&self.randomness);
        sides.find(|(_, randomness)| randomness.is_random() && randomness.is_training)
    }

    /// Whether rounding explains every difference: hooks, statistics and the weights that a model reads agree, and so do the
    /// knobs that change the computation. Sizes may differ between models whose layers are mapped.
    pub fn is_same(&self) -> bool {
        let is_agreed = |knob: &KnobDifference| self.is_mapped && may_be_mapped(knob);
        let mut knobs = self.knobs.iter();
        let knobs = knobs.all(|knob| knob.kind == KnobKind::Label || is_agreed(knob));
        knobs && !self.weights.count() && self.first().is_none() && self.statistics_match()
    }

    /// Returns the knob that prevents running the two side by side, and their families if these differ too.
    pub fn prevented(&self) -> Option<String> {
        let knob = &self.knobs[self.prevented_by?];
        let is_family = |knob: &&KnobDifference| knob.knob == "family";
        Some(match self.knobs.iter().find(is_family) {
            Some(family) => format!("{knob} ({family})"),
            None => knob.to_string(),
        })
    }

    /// Returns the causes of the first difference: knobs and tensors that act on its hook, likeliest first.
    pub fn causes(&self) -> Vec<Cause<'_>> {
        super::causes::causes(self)
    }
}

/// Whether a knob may differ between models whose layers are mapped.
fn may_be_mapped(knob: &KnobDifference) -> bool {
    let name = knob.knob.split('@').next().unwrap_or_default();
    knob.kind == KnobKind::Shape && MAPPED.contains(&name)
}

/// Sizes that may differ between models whose layers are mapped.
const MAPPED: [&str; 9] = [
    "n_layers",
    "d_model",
    "d_embed",
    "d_mlp",
    "d_head",
    "d_value",
    "n_kv_heads",
    "embed_projection",
    "experts",
];

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_checkpoint::Checkpoint;
    use attnscope_compute::attention::Scale;

    use attnscope_compute::ops::Cpu;
    use attnscope_forward::Sequence;

    fn sequence(tokens: &[u32]) -> Sequence {
        Sequence {
            tokens: tokens.to_vec(),
            positions: (0..tokens.len()).collect(),
            real: None,
            picture: None,
            ..Sequence::default()
        }
    }

    /// Compares a model with a copy whose first layers have other scales.
    fn compared(of: &str, row_bytes: usize) -> Comparison {
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
            .join(format!("oracle/{of}/model"));
        let a = attnscope_families::read(Checkpoint::open(&path).expect("opens"))
            .expect("is understood");
        let mut spec = a.spec.clone();
        for stack in &mut spec.stacks {
            let block = &mut stack.blocks_mut()[0];
            let own = block.own_mut().expect("attention");
            let factor = own.attention.scale.factor(own.attention.d_head);
            own.attention.scale = Scale::Factor(1.5 * factor);
        }
        let b = a.with_spec(spec);
        let has_encoder = a.spec.is_encoder_decoder();
        let source = sequence(&[5, 9, 2, 20, 7, 11, 3]);
        let input = Input {
            sequence: if has_encoder {
                sequence(&[0, 5, 9, 4])
            } else {
                source.clone()
            },
            source: has_encoder.then_some(source),
        };
        let options = CompareOptions {
            row_bytes,
            ..CompareOptions::default()
        };
        let mut found = Comparison::of_knobs(&a, &b, &options);
        let never = || false;
        found
            .compare_weights(&a, &b, &options, &mut |_, _| {}, &never)
            .expect("compares");
        let inputs = (input.clone(), input);
        found
            .run_prompt(&Cpu, (&a, &b), ("it", inputs), &options, &|_| {}, &never)
            .expect("runs");
        found
    }

    #[test]
    fn recomputed_heads_give_the_same_results_as_kept_ones() {
        // Families that are plain, or have sinks, windows and softcaps, learned biases and cross-attention, or global tokens.
        for family in ["gpt2", "gpt_oss", "gemma2_b", "t5_v11", "bloom_b", "led_c"] {
            let (kept, again) = (compared(family, usize::MAX), compared(family, 0));
            assert_eq!(kept.hooks.len(), again.hooks.len());
            for (a, b) in kept.hooks.iter().zip(&again.hooks) {
                let at = (a.name(), a.stack, a.layer_idx);
                assert_eq!(at, (b.name(), b.stack, b.layer_idx));
                let difference = (a.relative - b.relative).abs();
                assert!(difference <= 1e-6 * a.relative.max(1e-3), "{family} {at:?}");
                assert_eq!(a.n_one_sided, b.n_one_sided);
            }
            let first = kept.first().expect("a difference");
            assert_eq!(
                (first.hook, first.layer_idx),
                (Hook::Scores, Some(0)),
                "{family}"
            );
            let heads = kept.prompts[0].heads.iter().zip(&again.prompts[0].heads);
            for (a, b) in heads {
                assert!((a.divergence - b.divergence).abs() < 1e-7, "{family}");
            }
            let layers: Vec<usize> = kept.isolated.iter().map(|layer| layer.layer_idx).collect();
            assert!(
                !layers.is_empty() && layers.iter().all(|idx| *idx == 0),
                "{family}"
            );
        }
    }
}
