//! The embedding of a described model: a table of tokens or a map of rows of numbers, and positions.

use attnscope_compute::ops::Activation;
use attnscope_prompt::SoundRule;
use attnscope_spec::{EmbedSpec, PositionTable, SoundStem, TableSource};

use super::parts::MapPart;
use super::spec::Reads;
use super::{EmbedScale, Positions};

impl Reads<'_> {
    fn table(&self, name: &str, n_rows: usize) -> TableSource {
        TableSource {
            tensor: name.to_owned(),
            n_rows,
            width: self.sizes.d_model,
        }
    }

    /// # Errors
    /// When the parts of a model of pictures do not fit each other, with the problem.
    pub(super) fn embed(&self) -> Result<EmbedSpec, String> {
        let (of, d_model) = (self.of, self.sizes.d_model);
        let stored = |name: &String| {
            let n = self.tensors.info(name).map_or(0, |info| info.n_elements());
            self.table(name, n / d_model)
        };
        let plain = match (&of.patches, &of.values) {
            (Some(patches), _) => self.pictures(patches)?,
            (None, Some(map)) => self.rows_of_numbers(map),
            (None, None) => EmbedSpec::plain(self.table(&of.tokens, self.sizes.d_vocab)),
        };
        let positions = match (&of.positions, of.computed) {
            // Patches have a table of their own.
            (Some(_), _) if of.patches.is_some() => None,
            (Some(name), _) => Some(PositionTable::Stored(stored(name))),
            (None, Positions::Sines(sines)) => Some(PositionTable::Sinusoid(sines)),
            (None, _) => None,
        };
        Ok(EmbedSpec {
            scale: match of.embed_scale {
                EmbedScale::SqrtD => (d_model as f64).sqrt() as f32,
                EmbedScale::Factor(factor) => factor as f32,
            },
            positions,
            token_types: of.token_types.as_ref().map(stored),
            norm: of
                .embed_norm
                .as_ref()
                .map(|norm| self.norm(norm, 0, d_model)),
            ..plain
        })
    }

    /// The embedding of rows of numbers: a map in place of a table.
    fn rows_of_numbers(&self, map: &MapPart) -> EmbedSpec {
        let width = self.sizes.d_vocab;
        let rows = TableSource {
            tensor: map.weight.clone(),
            n_rows: width,
            width,
        };
        EmbedSpec {
            sound: Some(Box::new(SoundStem::plain(
                SoundRule::of_rows(width),
                Activation::Identity,
            ))),
            projection: Some(self.map(map, 0, (width, self.sizes.d_model), false)),
            projects_first: true,
            ..EmbedSpec::plain(rows)
        }
    }
}
