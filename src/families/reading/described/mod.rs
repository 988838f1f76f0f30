//! Models that `attnscope.toml` describes completely: the tensors of each part, and every setting that names and shapes leave
//! open.

mod attention;
mod bias;
mod cross;
mod embed;
mod experts;
mod feed_forward;
mod head;
mod latent;
mod layers;
mod maps;
pub mod names;
mod parts;
mod pictures;
mod places;
mod relative;
mod residuals;
mod settings;
mod spec;
mod tables;
mod tensors;

pub use self::bias::ScoreBias;
pub use self::cross::Cross;
pub use self::experts::Experts;
pub use self::latent::Latent;
pub use self::layers::Layers;
pub use self::maps::{Mlp, Qkv};
pub use self::parts::{
    Arranged, Axis, FusedPart, HEAD, MapPart, NormPart, Part, Per, every_nth, name_in_layer,
    name_of_all_heads, quoted, written_hole,
};
pub use self::relative::RelativePart;

pub use self::pictures::{LEARNED, PATCH_NORMS, PATCHES, Patches, read_pictures, sides};

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::{RopePrecision, Scale};
use attnscope_spec::{Pooled, Sines};
use serde_json::{Map, Value};

use self::tables::Tables;

/// Keys of the tables inside `[tensors]`: a decoder's attention to its encoder, and that encoder.
pub const CROSS: &str = "cross";
pub const ENCODER: &str = "encoder";

/// The key of the table of what is added to scores inside `[tensors]`.
const BIAS: &str = "bias";

/// Keys of rows that are added to what queries, and keys, are made of.
const PLACES: [&str; 2] = ["q_places", "k_places"];

/// Keys of what multiplies the residual before what attention and feed-forward layer give is added.
const RESIDUALS: [&str; 2] = ["attn_residual", "mlp_residual"];

/// The key of the table of latent vectors inside `[tensors]`.
const LATENT: &str = "latent";

/// The key of the table of vectors of distances inside `[tensors]`.
const RELATIVE: &str = "relative";

/// The key of the table of rotary angles inside `[tensors]`, and the end of the name under which it is arranged.
const ANGLES: &str = "angles";

/// The key of the number by which each later attention multiplies the first one's values, which it adds to its own.
const FIRST_VALUES: &str = "first_values";

/// The key of the table of a mixture of experts inside `[tensors]`.
const EXPERTS: &str = "experts";

/// Places of a norm in the model, by key.
pub const NORM_PLACES: [&str; 6] = [
    "attn_pre",
    "attn_out",
    "attn_post",
    "mlp_pre",
    "mlp_out",
    "mlp_post",
];

/// Computed positions, in addition to or instead of a stored table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Positions {
    None,
    Sines(Sines),
    Rotary {
        theta: f64,
        interleaved: bool,
        /// Number of dimensions of each head that rotate.
        d_rotary: usize,
    },
    Alibi,
}

/// Factor of the token embeddings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EmbedScale {
    SqrtD,
    Factor(f64),
}

/// A completely described model.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub d_head: usize,
    /// Width of the values of a head, if it is not that of its queries and keys.
    pub d_value: Option<usize>,
    /// The table of tokens; the name of the map of `values` or `patches`, if the model reads rows of numbers or pictures.
    pub tokens: String,
    /// The map from a row of numbers to the residual, in place of a table of tokens.
    pub values: Option<MapPart>,
    /// The map from the patches of a picture, in place of a table of tokens.
    pub patches: Option<Patches>,
    pub positions: Option<String>,
    /// The angles by which rotary positions turn each pair, if no frequencies give them.
    pub angles: Option<String>,
    pub token_types: Option<String>,
    pub embed_norm: Option<NormPart>,
    pub qkv: Qkv,
    /// The map of a branch's input whose sigmoid multiplies what the heads give: one value for each head, or for each value of theirs.
    pub out_gate: Option<MapPart>,
    /// `None` if the heads' outputs, side by side, are what attention adds.
    pub o: Option<MapPart>,
    /// `None` if the blocks have no feed-forward layer.
    pub mlp: Option<Mlp>,
    /// `None` without a feed-forward layer, or if the activations themselves are added.
    pub down: Option<MapPart>,
    /// The experts in place of, or in some layers beside, the one feed-forward layer.
    pub experts: Option<Experts>,
    /// In the order of [`NORM_PLACES`].
    pub norms: [Option<NormPart>; 6],
    /// Rows that are added to what queries, and keys, are made of. // [position, d_model] each
    pub places: [Option<String>; 2],
    /// What multiplies the residual before the output of attention and of the feed-forward layer is added: one number, or one for each
    /// of its values.
    pub residuals: [Option<String>; 2],
    pub q_norm: Option<NormPart>,
    pub k_norm: Option<NormPart>,
    /// Of what the heads give, before `o`: of all heads together, or of each by itself.
    pub z_norm: Option<NormPart>,
    /// Of what the activation of a feed-forward layer gives, before `down`.
    pub hidden_norm: Option<NormPart>,
    /// An activation of what `down` gives.
    pub out_activation: Option<String>,
    pub sinks: Option<String>,
    /// How much of the first attention's values each later one adds to its own.
    pub first_values: Option<String>,
    /// Narrow vectors that queries, keys and values are made of.
    pub latent: Option<Latent>,
    /// What is added to the scores.
    pub bias: Option<ScoreBias>,
    /// Vectors of distances that queries meet besides keys.
    pub relative: Option<RelativePart>,
    pub final_norm: Option<NormPart>,
    /// Of the one row that all positions were pooled to.
    pub pooled_norm: Option<NormPart>,
    /// The dense layer of the head before the unembedding, and its norm.
    pub head_dense: Option<MapPart>,
    pub head_norm: Option<NormPart>,
    /// `None` if the token table is the unembedding.
    pub unembed: Option<MapPart>,
    /// Bias of the logits.
    pub logit_bias: Option<String>,
    pub computed: Positions,
    pub causal: bool,
    pub norm_is_rms: bool,
    pub norm_adds_one: bool,
    /// Whether norms of heads see queries and keys that are turned already.
    pub norms_after_rope: bool,
    pub norm_eps: f64,
    pub activation: String,
    pub is_parallel: bool,
    pub embed_scale: EmbedScale,
    pub scale: Scale,
    pub window: Option<usize>,
    /// Which layers have the window: all, or every n-th from a first one on.
    pub window_layers: Option<(usize, usize)>,
    pub softcap: Option<f32>,
    pub logit_scale: f32,
    pub logit_softcap: Option<f32>,
    /// Which positions the head reads, if it gives one row of outputs for all of them.
    pub pooled: Option<Pooled>,
    /// What each pair's usual rotary frequency is divided by; empty for the usual frequencies.
    pub rope_divisors: Vec<f64>,
    pub rope_precision: RopePrecision,
    /// Whether the branches replace the residual instead of adding to it.
    pub has_no_residual: bool,
    /// Whether the model ends with its last residual, normed: it predicts nothing.
    pub has_no_head: bool,
    /// Which layers have attention, and which a feed-forward layer.
    pub attention_layers: Layers,
    pub feed_forward_layers: Layers,
    /// How many keys a query sees: those with the largest scores.
    pub top_keys: Option<usize>,
    /// The activation of the head's dense layer, if it is not that of the feed-forward layers.
    pub head_activation: Option<String>,
    /// Tables stored with the other axis first: the stored name and that of the turned table.
    pub turned: Vec<(String, String)>,
    /// The attention of each block to the encoder's output, in a decoder.
    pub cross: Option<Cross>,
    /// The encoder that the blocks attend to.
    pub encoder: Option<Box<Described>>,
}

/// Values under `[set]` that a description needs besides its tensors.
#[derive(Debug, Clone)]
pub struct Sizes {
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: Option<usize>,
    pub d_head: Option<usize>,
}

impl Described {
    /// Reads which tensors hold which part; all other settings keep their usual values.
    ///
    /// # Errors
    /// When a part is missing, is given twice, or has an invalid form.
    pub fn read(values: &Map<String, Value>, sizes: &Sizes) -> Result<Self, String> {
        let known = Self::keys();
        if let Some(other) = values.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!(
                "{other:?} is not known; known: {}",
                known.join(", ")
            ));
        }
        let tables = Tables { values, within: "" };
        let missing = |key: &str| format!("{key}: missing, expected a tensor's name");
        let qkv = tables.qkv()?;
        let mlp = tables.mlp(["up", "gate", "gate_up"])?;
        let down = tables.map("down")?;
        if (mlp.is_none() || down.is_none()) && values.contains_key("hidden_norm") {
            return Err("hidden_norm: expected up, or gate and up, and down beside it".to_owned());
        }
        if mlp.is_none() && down.is_some() {
            return Err("down: expected up, or gate and up, or gate_up beside it".to_owned());
        }
        let map_of_values = tables.map("values")?;
        let patches = Patches::read(&tables)?;
        let map_of_patches = patches.as_ref().map(|patches| &patches.map);
        let tokens = match (
            tables.table("tokens")?,
            map_of_values.as_ref(),
            map_of_patches,
        ) {
            (Some(tokens), None, None) => tokens,
            (None, Some(map), None) | (None, None, Some(map)) => map.weight.clone(),
            (None, None, None) => return Err(missing("tokens")),
            _ => return Err("expected tokens, values or patches, found several".to_owned()),
        };
        let mut norms: [Option<NormPart>; 6] = Default::default();
        for (norm, key) in norms.iter_mut().zip(NORM_PLACES) {
            *norm = tables.norm(key)?;
        }
        Ok(Self {
            n_layers: sizes.n_layers,
            n_heads: sizes.n_heads,
            n_kv_heads: sizes.n_kv_heads.unwrap_or(sizes.n_heads),
            d_head: sizes.d_head.unwrap_or(0),
            d_value: None,
            tokens,
            values: map_of_values,
            patches,
            positions: tables.table("positions")?,
            angles: tables.table("angles")?,
            token_types: tables.table("token_types")?,
            embed_norm: tables.norm("embed_norm")?,
            qkv,
            out_gate: tables.map("out_gate")?,
            o: tables.map("o")?,
            mlp,
            down,
            experts: Experts::read(values)?,
            norms,
            places: [tables.table(PLACES[0])?, tables.table(PLACES[1])?],
            residuals: [tables.table(RESIDUALS[0])?, tables.table(RESIDUALS[1])?],
            q_norm: tables.norm("q_norm")?,
            k_norm: tables.norm("k_norm")?,
            z_norm: tables.norm("z_norm")?,
            hidden_norm: tables.norm("hidden_norm")?,
            out_activation: None,
            sinks: tables.table("sinks")?,
            first_values: tables.table(FIRST_VALUES)?,
            latent: Latent::read(values)?,
            bias: ScoreBias::read(values)?,
            relative: RelativePart::read(values)?,
            final_norm: tables.norm("final_norm")?,
            pooled_norm: tables.norm("pooled_norm")?,
            head_dense: tables.map("head_dense")?,
            head_norm: tables.norm("head_norm")?,
            unembed: tables.map("unembed")?,
            logit_bias: tables.table("logit_bias")?,
            computed: Positions::None,
            causal: true,
            norm_is_rms: false,
            norm_adds_one: false,
            norms_after_rope: false,
            norm_eps: 1e-5,
            activation: "gelu".to_owned(),
            is_parallel: false,
            embed_scale: EmbedScale::Factor(1.0),
            scale: Scale::InvSqrtD,
            window: None,
            window_layers: None,
            softcap: None,
            logit_scale: 1.0,
            logit_softcap: None,
            pooled: None,
            rope_divisors: Vec::new(),
            rope_precision: RopePrecision::Float32,
            has_no_residual: false,
            has_no_head: false,
            attention_layers: Layers::All,
            feed_forward_layers: Layers::All,
            top_keys: None,
            head_activation: None,
            turned: tables.turned()?,
            cross: Cross::read(values)?,
            encoder: None,
        })
    }

    /// The head width if the heads divide the inputs of the output map evenly; without that map, its inputs are as wide as the
    /// residual.
    pub fn even_d_head(&self, tensors: &Tensors) -> Option<usize> {
        let d_model = self.d_model(tensors)?;
        let width = match &self.o {
            Some(o) => {
                let name = name_of_all_heads(&name_in_layer(&o.weight, self.first_attending()));
                tensors.info(&name)?.n_elements().checked_div(d_model)?
            }
            None => d_model,
        };
        let d_head = width.checked_div(self.n_heads)?;
        (d_head > 0).then_some(d_head)
    }

    /// Width of the values of a head.
    pub fn d_value(&self) -> usize {
        self.d_value.unwrap_or(self.d_head)
    }

    /// Width of the residual, by the shape of what makes it.
    fn d_model(&self, tensors: &Tensors) -> Option<usize> {
        match &self.patches {
            Some(patches) => patches.d_model(tensors),
            None => Some(self.table_shape(&tensors.info(&self.tokens)?.shape)?[1]),
        }
    }

    /// The numbers of rows and columns of the table of tokens, or of features and outputs of the map of values.
    fn table_shape(&self, shape: &[usize]) -> Option<[usize; 2]> {
        let [first, second] = *shape else {
            return None;
        };
        let is_turned = self
            .values
            .as_ref()
            .is_some_and(|map| map.axes[0] == Axis::Out);
        Some(if is_turned {
            [second, first]
        } else {
            [first, second]
        })
    }

    /// The key of what is read in place of tokens, if it is something else.
    fn reads_no_tokens(&self) -> Option<&'static str> {
        let values = self.values.as_ref().map(|_| "values");
        values.or(self.patches.as_ref().map(|_| PATCHES))
    }

    /// Every key of `[tensors]`.
    pub fn keys() -> Vec<&'static str> {
        let around = [
            "tokens",
            "values",
            "positions",
            "angles",
            "token_types",
            "embed_norm",
            "final_norm",
            "pooled_norm",
            "head_dense",
            "head_norm",
            "unembed",
            "logit_bias",
        ];
        let of_layers = [
            "q",
            "k",
            "v",
            "kv",
            "qkv",
            "q_norm",
            "k_norm",
            "sinks",
            FIRST_VALUES,
            "z_norm",
            "out_gate",
            "o",
            "gate",
            "up",
            "gate_up",
            "hidden_norm",
            "down",
        ];
        [
            &around[..],
            &NORM_PLACES,
            &of_layers,
            &[PATCHES],
            &LEARNED,
            &PATCH_NORMS,
            &PLACES,
            &RESIDUALS,
            &[BIAS, RELATIVE, LATENT, CROSS, EXPERTS],
        ]
        .concat()
    }

    /// Every part that exists, with its key, in the order of computation.
    pub fn parts(&self) -> Vec<(&'static str, Part)> {
        let mut parts = match (&self.values, &self.patches) {
            (_, Some(patches)) => patches.parts(),
            (Some(map), None) => vec![("values", Part::Map(map.clone()))],
            (None, None) => vec![("tokens", Part::Table(self.tokens.clone()))],
        };
        let table = |key: &'static str, name: &Option<String>| {
            name.iter()
                .map(move |name| (key, Part::Table(name.clone())))
                .collect::<Vec<_>>()
        };
        let norm = |key: &'static str, norm: &Option<NormPart>| {
            norm.iter()
                .map(move |norm| (key, Part::Norm(norm.clone())))
                .collect::<Vec<_>>()
        };
        let map = |key: &'static str, map: &MapPart| (key, Part::Map(map.clone()));
        parts.extend(table("positions", &self.positions));
        parts.extend(table("angles", &self.angles));
        parts.extend(table("token_types", &self.token_types));
        parts.extend(norm("embed_norm", &self.embed_norm));
        parts.extend(norm(NORM_PLACES[0], &self.norms[0]));
        parts.extend(self.latent.iter().flat_map(Latent::parts));
        parts.extend(self.qkv.parts());
        parts.extend(norm("q_norm", &self.q_norm));
        parts.extend(norm("k_norm", &self.k_norm));
        parts.extend(table("sinks", &self.sinks));
        parts.extend(table(FIRST_VALUES, &self.first_values));
        parts.extend(norm("z_norm", &self.z_norm));
        parts.extend(self.out_gate.iter().map(|gate| map("out_gate", gate)));
        parts.extend(self.o.iter().map(|o| map("o", o)));
        for (key, place) in NORM_PLACES.into_iter().zip(&self.norms).take(4).skip(1) {
            parts.extend(norm(key, place));
        }
        for (key, name) in PLACES.into_iter().zip(&self.places) {
            parts.extend(table(key, name));
        }
        for (key, name) in RESIDUALS.into_iter().zip(&self.residuals) {
            parts.extend(table(key, name));
        }
        parts.extend(self.cross.iter().flat_map(Cross::parts));
        let mlp = self.mlp.iter();
        parts.extend(mlp.flat_map(|mlp| mlp.parts(["up", "gate", "gate_up"])));
        parts.extend(norm("hidden_norm", &self.hidden_norm));
        parts.extend(self.down.iter().map(|down| map("down", down)));
        parts.extend(self.experts.iter().flat_map(Experts::parts));
        for (key, place) in NORM_PLACES.into_iter().zip(&self.norms).skip(4) {
            parts.extend(norm(key, place));
        }
        parts.extend(norm("final_norm", &self.final_norm));
        parts.extend(norm("pooled_norm", &self.pooled_norm));
        parts.extend(self.head_dense.iter().map(|dense| map("head_dense", dense)));
        parts.extend(norm("head_norm", &self.head_norm));
        parts.extend(self.unembed.iter().map(|unembed| map("unembed", unembed)));
        parts.extend(table("logit_bias", &self.logit_bias));
        parts
    }
}
