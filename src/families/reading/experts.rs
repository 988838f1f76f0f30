//! Mixture-of-experts blocks: the configuration keys that describe them, and their tensor names.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    ChoiceBias, ExpertGroups, ExpertsSpec, FeedForward, LinearSource, MlpSpec, Part, RouterRule,
    RouterScores,
};

use super::bias_rule::BiasRule;
use super::{check_counts, check_used, sparse_layers};

/// Names of the three maps of a gated feed-forward block.
#[derive(Debug, Clone, Copy)]
pub struct GatedNames {
    pub gate: &'static str,
    pub up: &'static str,
    pub down: &'static str,
}

/// The names most families use.
pub const USUAL: GatedNames = GatedNames {
    gate: "gate_proj",
    up: "up_proj",
    down: "down_proj",
};

/// Mixtral's names.
pub const NUMBERED: GatedNames = GatedNames {
    gate: "w1",
    up: "w3",
    down: "w2",
};

/// Builds down(act(gate x) · up x), stored under `at`.
pub fn gated(
    at: &str,
    names: GatedNames,
    d_model: usize,
    d_mlp: usize,
    activation: Activation,
    has_bias: bool,
) -> MlpSpec {
    let linear =
        |name: &str, n_in, n_out| super::linear(&format!("{at}.{name}"), n_in, n_out, has_bias);
    let (up, down) = (
        linear(names.up, d_model, d_mlp),
        linear(names.down, d_mlp, d_model),
    );
    MlpSpec {
        gate: Some(linear(names.gate, d_model, d_mlp)),
        ..MlpSpec::plain(up, down, activation)
    }
}

/// How the experts of a layer are stored.
#[derive(Debug, Clone, Copy)]
pub enum ExpertStore {
    /// Each expert has its own tensors.
    Each(GatedNames),
    /// Two tensors of three axes: gate above up, and down.
    Slabs {
        gate_up: &'static str,
        down: &'static str,
    },
    /// As `Slabs`, but each matrix is input-major: gate before up in every row.
    SlabsByInput {
        gate_up: &'static str,
        down: &'static str,
    },
}

/// The width of the shared expert.
#[derive(Debug, Clone, Copy)]
pub enum SharedWidth {
    Key(&'static str),
    /// As many experts side by side as the key states, with this default.
    Times(&'static str, usize),
    /// As many experts as the first key states, of the width that the second states.
    TimesOf(&'static str, &'static str),
}

/// The shared expert, which every token uses.
#[derive(Debug, Clone, Copy)]
pub struct SharedKeys {
    pub name: &'static str,
    pub width: SharedWidth,
    /// The map whose sigmoid weights its output.
    pub gate: Option<&'static str>,
}

/// Which layers have experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseLayers {
    All,
    /// Every n-th layer, unless listed as dense.
    Stepped,
    /// All layers from the one that the key names, with this default.
    From(&'static str, usize),
    /// The layers that `mlp_layer_types` calls sparse; without it, all from the one that the key names, with this default.
    NamedOrFrom(&'static str, usize),
    /// Every n-th layer in a range.
    Between,
    /// The layers of a list; without it, every n-th.
    ListedOrStepped {
        list: &'static str,
        step: &'static str,
    },
}

/// Expert groups: how many of a group's best scores rank it, and the defaults of the keys.
#[derive(Debug, Clone, Copy)]
pub struct GroupKeys {
    pub n_best: usize,
    pub n: usize,
    pub n_kept: usize,
}

impl GroupKeys {
    /// Groups exist only if the configuration states them.
    pub const fn if_stated(n_best: usize) -> Self {
        Self {
            n_best,
            n: 1,
            n_kept: 1,
        }
    }
}

/// A family's keys and conventions for experts.
#[derive(Debug, Clone, Copy)]
pub struct ExpertsKeys {
    /// Name under the layer of the module with experts and router.
    pub at: &'static str,
    pub store: ExpertStore,
    pub router: &'static str,
    /// Two names for the number of experts.
    pub n_experts: [&'static str; 2],
    pub d_expert: &'static str,
    pub n_used: &'static str,
    /// The key of the number of further experts that return their input, with its default.
    pub identities: Option<(&'static str, usize)>,
    pub scores: RouterScores,
    /// Bias added to the scores for selection only: its name, and whether it is stored as a one-row matrix.
    pub choice_bias: Option<(&'static str, bool)>,
    /// Expert groups, if there are any.
    pub groups: Option<GroupKeys>,
    pub normalises: BiasRule,
    /// The key of the lower bound for the sum that normalises weights, with its default.
    pub least_sum: Option<(&'static str, f64)>,
    /// The key of the factor of the weights, with its default.
    pub scale: Option<(&'static str, f64)>,
    pub shared: Option<SharedKeys>,
    pub layers: SparseLayers,
    /// Weights multiply the experts' inputs instead of their outputs.
    pub scales_inputs: bool,
}

impl ExpertsKeys {
    /// Experts in every layer, weighted by a softmax over all, as in OLMoE.
    pub const PLAIN: Self = Self {
        at: "mlp",
        store: ExpertStore::Each(USUAL),
        router: "gate",
        n_experts: ["num_experts", "num_local_experts"],
        d_expert: "moe_intermediate_size",
        n_used: "num_experts_per_tok",
        identities: None,
        scores: RouterScores::Softmax,
        choice_bias: None,
        groups: None,
        normalises: BiasRule::Key("norm_topk_prob", false),
        least_sum: None,
        scale: None,
        shared: None,
        layers: SparseLayers::All,
        scales_inputs: false,
    };

    /// Reads the keys.
    ///
    /// # Errors
    /// When a value is missing or impossible, or the configuration describes more than the file can hold.
    pub fn read(
        &self,
        reader: &mut Reader<'_>,
        tensors: &Tensors,
        n_layers: usize,
    ) -> Result<Experts> {
        let d_expert = reader.size("d_expert", self.d_expert)?;
        self.read_as_wide(reader, tensors, (n_layers, d_expert))
    }

    /// Reads the keys of experts whose width is known.
    ///
    /// # Errors
    /// As for [`ExpertsKeys::read`].
    pub fn read_as_wide(
        &self,
        reader: &mut Reader<'_>,
        tensors: &Tensors,
        (n_layers, d_expert): (usize, usize),
    ) -> Result<Experts> {
        let n_experts = reader.either_size("n_experts", self.n_experts)?;
        let shares = !matches!(self.store, ExpertStore::Each(_));
        check_counts(reader, tensors, n_layers, (n_experts, shares))?;
        let n_used = reader.size("n_experts_used", self.n_used)?;
        let n_identities = match self.identities {
            Some((key, default)) => reader.count_or("n_identity_experts", key, default)?,
            None => 0,
        };
        check_used(reader, n_used, n_experts + n_identities)?;
        let groups = match self.groups {
            Some(keys) => groups(reader, (n_experts, n_used), keys)?,
            None => None,
        };
        let router = RouterRule {
            groups,
            n_identities,
            normalises: self.normalises.read(reader, "normalises_experts")?,
            scale: match self.scale {
                Some((key, default)) => reader.number_or("expert_scale", key, default)? as f32,
                None => 1.0,
            },
            least_sum: match self.least_sum {
                Some((key, default)) => reader.number_or("least_weight_sum", key, default)? as f32,
                None => 0.0,
            },
            scales_inputs: self.scales_inputs,
            ..RouterRule::plain(n_used, self.scores)
        };
        let shared = match self.shared {
            Some(shared) => shared_width(reader, shared.width, d_expert)?.map(|w| (shared, w)),
            None => None,
        };
        let is_sparse: Box<dyn Fn(usize) -> bool> = match self.layers {
            SparseLayers::All => Box::new(|_| true),
            SparseLayers::Stepped => sparse_layers(reader)?,
            SparseLayers::From(key, default) => {
                let first = reader.count_or("n_dense_layers", key, default)?;
                Box::new(move |idx| idx >= first)
            }
            SparseLayers::NamedOrFrom(key, default) => {
                match reader.words_by_layer(MLP_TYPES, n_layers)? {
                    Some(words) => called_sparse(reader, &words)?,
                    None => {
                        let first = reader.count_or("n_dense_layers", key, default)?;
                        Box::new(move |idx| idx >= first)
                    }
                }
            }
            SparseLayers::Between => between(reader, n_layers)?,
            SparseLayers::ListedOrStepped { list, step } => match reader.numbers(list)? {
                Some(listed) => Box::new(move |idx| listed.contains(&(idx as u64))),
                None => {
                    let default = Origin::Default(step.to_owned());
                    let step = reader.size_or("experts_every", step, 1, default)?;
                    Box::new(move |idx| (idx + 1) % step == 0)
                }
            },
        };
        Ok(Experts {
            keys: *self,
            n_experts,
            d_expert,
            router,
            shared,
            is_sparse,
        })
    }
}

/// The width of the shared expert; `None` if there is none.
fn shared_width(
    reader: &mut Reader<'_>,
    width: SharedWidth,
    d_expert: usize,
) -> Result<Option<usize>> {
    Ok(match width {
        SharedWidth::Key(key) => Some(reader.size("d_shared_expert", key)?),
        SharedWidth::Times(key, default) => {
            let n = reader.count_or("n_shared_experts", key, default)?;
            Some(n * d_expert).filter(|width| *width > 0)
        }
        SharedWidth::TimesOf(key, width) => {
            let n = reader.count_or("n_shared_experts", key, 1)?;
            Some(n * reader.size("d_shared_expert", width)?).filter(|width| *width > 0)
        }
    })
}

/// Expert groups, some of which are selected; one group is the same as none.
fn groups(
    reader: &mut Reader<'_>,
    (n_experts, n_used): (usize, usize),
    keys: GroupKeys,
) -> Result<Option<ExpertGroups>> {
    let n_best = keys.n_best;
    let default = |key: &str| Origin::Default(key.to_owned());
    let n = reader.size_or("n_expert_groups", "n_group", keys.n, default("n_group"))?;
    let n_kept = reader.size_or(
        "n_expert_groups_kept",
        "topk_group",
        keys.n_kept,
        default("topk_group"),
    )?;
    if !n_experts.is_multiple_of(n) || n_kept > n {
        let problem = format!("{n} groups, {n_kept} of them kept, do not fit {n_experts} experts");
        return Err(Error::config(reader.path(), "n_group", problem));
    }
    const KEPT: &str = "topk_group";
    if n > 1 && reader.value(KEPT).is_none() && (keys.n == 1 || reader.is_null(KEPT)) {
        return Err(Error::config(
            reader.path(),
            KEPT,
            "missing, expected how many groups are kept",
        ));
    }
    // With too few experts left, the selection from the other groups would be arbitrary.
    let n_left = n_kept * (n_experts / n);
    if n_used > n_left {
        let problem =
            format!("expected at most the {n_left} experts of {n_kept} groups, found {n_used}");
        return Err(Error::config(reader.path(), "num_experts_per_tok", problem));
    }
    Ok(Some(ExpertGroups { n, n_kept, n_best }).filter(|_| n > 1))
}

/// The key that says of each layer whether it has experts.
const MLP_TYPES: &str = "mlp_layer_types";

/// The layers whose feed-forward layer is called `sparse`; others are called `dense`.
fn called_sparse(reader: &mut Reader<'_>, words: &[String]) -> Result<Box<dyn Fn(usize) -> bool>> {
    let is_sparse = |word: &String| match word.as_str() {
        "sparse" => Ok(true),
        "dense" => Ok(false),
        other => {
            let problem = format!("expected dense or sparse, found {other:?}");
            Err(Error::config(reader.path(), MLP_TYPES, problem))
        }
    };
    let are_sparse: Vec<bool> = words.iter().map(is_sparse).collect::<Result<_>>()?;
    let n_dense = are_sparse.iter().filter(|is_sparse| !**is_sparse).count();
    reader.note("n_dense_layers", n_dense, Origin::Key(MLP_TYPES.to_owned()));
    Ok(Box::new(move |idx| are_sparse.get(idx) == Some(&true)))
}

/// Every n-th layer in an inclusive range; -1 also stands for the last layer.
fn between(reader: &mut Reader<'_>, n_layers: usize) -> Result<Box<dyn Fn(usize) -> bool>> {
    let first = reader.count_or("first_sparse_layer", "moe_layer_start_index", 1)?;
    const END: &str = "moe_layer_end_index";
    let last = match reader.value(END).map(|value| (value, value.as_i64())) {
        None | Some((_, Some(-1))) => n_layers - 1,
        Some((_, Some(last))) if last >= 0 => last as usize,
        Some((value, _)) => {
            let problem = format!("expected a layer or -1, found {value}");
            return Err(Error::config(reader.path(), END, problem));
        }
    };
    let every_key = "moe_layer_interval";
    let default = Origin::Default(every_key.to_owned());
    let every = reader.size_or("experts_every", every_key, 1, default)?;
    Ok(Box::new(move |idx| {
        (first..=last).contains(&idx) && (idx + 1) % every == 0
    }))
}

/// The experts of a model, as its configuration describes them.
pub struct Experts {
    keys: ExpertsKeys,
    n_experts: usize,
    pub d_expert: usize,
    pub router: RouterRule,
    shared: Option<(SharedKeys, usize)>,
    is_sparse: Box<dyn Fn(usize) -> bool>,
}

impl Experts {
    /// Whether a layer has experts.
    pub fn are_in(&self, layer_idx: usize) -> bool {
        (self.is_sparse)(layer_idx)
    }

    /// The experts of one layer; `has_bias` says whether the shared expert has biases.
    pub fn of_layer(
        &self,
        tensors: &Tensors,
        layer: &str,
        d_model: usize,
        (activation, has_bias): (Activation, bool),
    ) -> FeedForward {
        let (keys, n, width) = (&self.keys, self.n_experts, self.d_expert);
        let at = format!("{layer}.{}", keys.at);
        let n_routed = n + self.router.n_identities;
        let router = format!("{at}.{}", keys.router);
        let router = super::linear_bias_if_stored(tensors, &router, d_model, n_routed);
        let choice_bias = keys.choice_bias.map(|(name, is_row)| ChoiceBias {
            tensor: format!("{at}.{name}"),
            shape: [1, n_routed][usize::from(!is_row)..].to_vec(),
        });
        // Some versions store all experts together in every family, with gate and up in one tensor or apart.
        let apart = format!("{at}.experts.gate_proj.weight");
        let fused = format!("{at}.experts.gate_up_proj");
        let expert = |idx: usize| match keys.store {
            // Other file formats store each expert separately.
            ExpertStore::SlabsByInput { .. }
                if tensors.contains(&format!("{at}.experts.0.gate_proj.weight")) =>
            {
                let at = format!("{at}.experts.{idx}");
                gated(&at, USUAL, d_model, width, activation, false)
            }
            ExpertStore::SlabsByInput { gate_up, down } => slabs_by_input(
                (&format!("{at}.{gate_up}"), &format!("{at}.{down}")),
                (idx, n),
                (d_model, width),
                activation,
            ),
            _ if tensors.contains(&apart) => {
                let at = format!("{at}.experts");
                let mlp = gated(&at, USUAL, d_model, width, activation, false);
                MlpSpec {
                    up: mlp.up.slab(idx, n),
                    gate: mlp.gate.map(|gate| gate.slab(idx, n)),
                    down: mlp.down.slab(idx, n),
                    ..mlp
                }
            }
            _ if tensors.contains(&fused) => slabs(
                (&fused, &format!("{at}.experts.down_proj")),
                (idx, n),
                (d_model, width),
                activation,
            ),
            ExpertStore::Each(names) => {
                let at = format!("{at}.experts.{idx}");
                gated(&at, names, d_model, width, activation, false)
            }
            ExpertStore::Slabs { .. } if tensors.contains(&format!("{at}.experts.0.w1.weight")) => {
                let at = format!("{at}.experts.{idx}");
                gated(&at, NUMBERED, d_model, width, activation, false)
            }
            ExpertStore::Slabs { gate_up, down } => slabs(
                (&format!("{at}.{gate_up}"), &format!("{at}.{down}")),
                (idx, n),
                (d_model, width),
                activation,
            ),
        };
        let shared = self.shared.map(|(shared, width)| {
            let at_shared = format!("{at}.{}", shared.name);
            let mlp = gated(&at_shared, USUAL, d_model, width, activation, has_bias);
            let gate = shared
                .gate
                .map(|gate| LinearSource::whole(format!("{at}.{gate}.weight"), None, d_model, 1));
            (mlp, gate)
        });
        FeedForward::Experts(Box::new(ExpertsSpec {
            router,
            rule: RouterRule {
                choice_bias,
                ..self.router.clone()
            },
            experts: (0..n).map(expert).collect(),
            shared,
            latent: None,
            norms: None,
            apart: None,
        }))
    }
}

/// One expert of the two slabs that hold all of them.
pub fn slabs(
    (gate_up, down): (&str, &str),
    (idx, n): (usize, usize),
    (d_model, width): (usize, usize),
    activation: Activation,
) -> MlpSpec {
    let part = |offset| {
        let whole = LinearSource::whole(gate_up.to_owned(), None, d_model, 2 * width);
        whole.slab(idx, n).part(Part {
            group: 2 * width,
            offset,
            len: width,
        })
    };
    let down = LinearSource::whole(down.to_owned(), None, width, d_model).slab(idx, n);
    MlpSpec {
        gate: Some(part(0)),
        ..MlpSpec::plain(part(width), down, activation)
    }
}

/// One expert of the two input-major slabs that hold all of them.
fn slabs_by_input(
    (gate_up, down): (&str, &str),
    (idx, n): (usize, usize),
    (d_model, width): (usize, usize),
    activation: Activation,
) -> MlpSpec {
    let by_input = |name: &str, n_in, n_out| {
        LinearSource::whole(name.to_owned(), None, n_in, n_out)
            .input_major()
            .slab(idx, n)
    };
    let part = |offset| {
        by_input(gate_up, d_model, 2 * width).part(Part {
            group: 2 * width,
            offset,
            len: width,
        })
    };
    MlpSpec {
        gate: Some(part(0)),
        ..MlpSpec::plain(part(width), by_input(down, width, d_model), activation)
    }
}
