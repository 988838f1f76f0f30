//! Residuals of a described model that are no plain sum: a residual that is multiplied before a branch is added, and later attentions that
//! add the values of the first one to their own, which rows keep in columns.

use attnscope_spec::{BlockRow, KeptStart, KvSharing, RowSpec, SumRule, SumWeights};

use super::RESIDUALS;
use super::parts::name_in_layer;
use super::spec::Reads;

impl Reads<'_> {
    /// What multiplies the residual before attention (0) or the feed-forward layer (1) adds to it.
    pub(super) fn sum(
        &self,
        branch: usize,
        layer_idx: usize,
    ) -> Result<Option<Box<SumWeights>>, String> {
        let key = RESIDUALS[branch];
        let Some(name) = &self.of.residuals[branch] else {
            return Ok(None);
        };
        if !self.of.has(key, layer_idx) {
            return Ok(None);
        }
        let (name, width) = (self.vector(name, layer_idx), self.sizes.d_model);
        let shape = self.tensors.info(&name).map(|info| info.shape.clone());
        let shape = shape.ok_or_else(|| format!("{key}: no tensor is called {name}"))?;
        let n: usize = shape.iter().product();
        if n != 1 && n != width {
            return Err(format!(
                "{key}: {name}: expected one number, or one for each of {width} values, found {n}"
            ));
        }
        Ok(Some(Box::new(SumWeights {
            shape,
            ..SumWeights::plain(name, width, SumRule::OfResidual)
        })))
    }

    /// What an attention does with the values of the first one: that keeps its own, and the others add it.
    pub(super) fn shared(&self, layer_idx: usize) -> Option<KvSharing> {
        let share = self.of.first_values.as_ref()?;
        let first = self.of.first_attending();
        Some(if layer_idx == first {
            KvSharing::Provides(0)
        } else {
            KvSharing::AddsValues {
                layer_idx: first,
                column: 0,
                share: name_in_layer(share, layer_idx),
            }
        })
    }

    /// Number of columns that keys and values of the first attention take.
    fn n_kept(&self) -> Option<usize> {
        let of = self.of;
        let width = of.d_head + of.d_value();
        of.first_values.as_ref().map(|_| of.n_kv_heads * width)
    }

    pub(super) fn rows(&self) -> Option<RowSpec> {
        Some(RowSpec {
            d_model: self.sizes.d_model,
            streams: None,
            n_kept: self.n_kept()?,
            first: KeptStart::Nothing,
        })
    }

    pub(super) fn block_row(&self) -> Option<BlockRow> {
        Some(BlockRow {
            d_model: self.sizes.d_model,
            streams: None,
            n_kept: self.n_kept()?,
            beside: false,
            shortcut: None,
            join: None,
        })
    }
}
