//! A described decoder's attention to its encoder: the table `[tensors.cross]`.

use attnscope_checkpoint::Tensors;
use attnscope_spec::{ModelSpec, PositionTable, Stack, StackSpec};
use serde_json::{Map, Value};

use super::parts::{MapPart, NormPart, Part};
use super::spec::width_of;
use super::tables::Tables;
use super::{CROSS, Described, Qkv};

const KEYS: [&str; 11] = [
    "q", "k", "v", "kv", "qkv", "q_norm", "k_norm", "o", "pre", "out", "post",
];

/// The attention of each decoder block to the encoder's output; queries come from the decoder, keys and values from the encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Cross {
    pub qkv: Qkv,
    pub q_norm: Option<NormPart>,
    pub k_norm: Option<NormPart>,
    /// `None` if the heads' outputs, side by side, are what is added.
    pub o: Option<MapPart>,
    /// Norms of the decoder's residual before, of the output, and of the residual after the addition.
    pub norms: [Option<NormPart>; 3],
}

impl Cross {
    /// Reads `[tensors.cross]` among the values of `[tensors]`; `None` if there is none.
    pub(super) fn read(values: &Map<String, Value>) -> Result<Option<Self>, String> {
        let values = match values.get(CROSS) {
            None => return Ok(None),
            Some(Value::Object(values)) => values,
            Some(other) => return Err(format!("{CROSS}: expected a table, found {other}")),
        };
        if let Some(other) = values.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let known = KEYS.join(", ");
            return Err(format!("{CROSS}.{other}: is not known; known: {known}"));
        }
        let tables = Tables {
            values,
            within: "cross.",
        };
        Ok(Some(Self {
            qkv: tables.qkv()?,
            q_norm: tables.norm("q_norm")?,
            k_norm: tables.norm("k_norm")?,
            o: tables.map("o")?,
            norms: [
                tables.norm("pre")?,
                tables.norm("out")?,
                tables.norm("post")?,
            ],
        }))
    }

    /// Every part that exists, with its key.
    pub(super) fn parts(&self) -> Vec<(&'static str, Part)> {
        let mut parts = self.qkv.parts();
        let heads = [("q_norm", &self.q_norm), ("k_norm", &self.k_norm)];
        let around = ["pre", "out", "post"].into_iter().zip(&self.norms);
        let norms = heads.into_iter().chain(around);
        parts.extend(norms.filter_map(|(key, norm)| Some((key, Part::Norm(norm.clone()?)))));
        parts.extend(self.o.iter().map(|o| ("o", Part::Map(o.clone()))));
        parts
    }
}

impl Described {
    /// The model of this encoder and a decoder.
    pub(super) fn before(
        &self,
        decoder: ModelSpec,
        tensors: &Tensors,
    ) -> Result<ModelSpec, String> {
        let (encoder, _) = self.stack(tensors)?;
        let (width, expected) = (width_of(&encoder), decoder.d_model);
        if width != expected {
            return Err(format!(
                "the encoder's residual has {width} values, expected {expected}, the decoder's"
            ));
        }
        let n_rows = self.n_ctx(&encoder, tensors);
        // A table of the decoder's own limits targets by itself.
        let of_targets = decoder.main_stack().embed.positions.as_ref();
        let of_targets = of_targets.and_then(PositionTable::n_rows);
        let n_ctx = match (decoder.n_ctx, of_targets) {
            (Some(n_ctx), Some(n_targets)) if n_ctx == n_targets => n_rows,
            (n_ctx, _) => n_rows.into_iter().chain(n_ctx).min(),
        };
        let mut stacks = vec![StackSpec {
            stack: Stack::Encoder,
            ..encoder
        }];
        stacks.extend(decoder.stacks.iter().map(|own| StackSpec {
            stack: Stack::Decoder,
            ..own.clone()
        }));
        Ok(ModelSpec {
            n_ctx,
            stacks,
            ..decoder
        })
    }
}
