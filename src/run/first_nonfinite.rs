//! The first value of a run that is NaN or infinite, and the tensor it came from.

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::RowSummary;
use attnscope_compute::kernels::first_nonfinite;
use attnscope_forward::{AttentionRun, Hook};
use attnscope_spec::{Model, NeededTensor, Stack};

/// Where the first NaN or infinity appeared, in the order of computation.
#[derive(Debug, Clone, PartialEq)]
pub struct NonFinite {
    pub stack: Stack,
    pub layer_idx: usize,
    pub hook: Hook,
    pub position_idx: usize,
    /// Index within the position's vector; for scores and the pattern, the head.
    pub column_idx: usize,
    pub value: f32,
    /// Name of a tensor of the layer that itself holds a NaN or infinity, and the index of that element.
    pub tensor: Option<(String, usize)>,
}

impl std::fmt::Display for NonFinite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.value.is_nan() {
            "NaN"
        } else {
            "infinity"
        };
        let (hook, position, column) = (
            self.hook.full_name(self.stack, self.layer_idx),
            self.position_idx,
            self.column_idx,
        );
        let of = match self.hook {
            Hook::Scores | Hook::Pattern => "head",
            _ => "column",
        };
        write!(
            f,
            "{hook}: first {what} at position {position}, {of} {column}"
        )?;
        match &self.tensor {
            Some((tensor, element)) => write!(f, "; {tensor} holds one at element {element}"),
            None => Ok(()),
        }
    }
}

impl NonFinite {
    /// Traces a non-finite attention output back to non-finite scores or, failing that, a non-finite pattern. No hook sees
    /// these for every head, but the summaries of their rows show it.
    pub(super) fn traced_back(self, ran: Option<&AttentionRun>) -> Self {
        let Some(ran) = ran.filter(|_| self.hook == Hook::Z) else {
            return self;
        };
        let first = |is_odd: &dyn Fn(usize, &RowSummary) -> bool| {
            let heads = ran.heads.iter().enumerate();
            let rows = heads.filter_map(|(head_idx, head)| {
                let mut rows = head.rows.iter().enumerate();
                let (position_idx, row) =
                    rows.find(|(position_idx, row)| is_odd(*position_idx, row))?;
                Some((position_idx, head_idx, *row))
            });
            rows.min_by_key(|(position_idx, head_idx, _)| (*position_idx, *head_idx))
        };
        if let Some((position_idx, column_idx, row)) = first(&|_, row| row.is_nonfinite) {
            let extremes = [row.score_max, row.score_min];
            let infinite = extremes.into_iter().find(|score| score.is_infinite());
            return Self {
                hook: Hook::Scores,
                position_idx,
                column_idx,
                value: infinite.unwrap_or(f32::NAN),
                ..self
            };
        }
        let is_odd = |position_idx: usize, row: &RowSummary| {
            let sees_nothing = row.n_visible == 0 && position_idx == self.position_idx;
            row.mass.is_nan() && (row.n_visible > 0 || sees_nothing)
        };
        match first(&is_odd) {
            Some((position_idx, column_idx, _)) => Self {
                hook: Hook::Pattern,
                position_idx,
                column_idx,
                value: f32::NAN,
                ..self
            },
            None => self,
        }
    }
}

/// Among the tensors used so far, finds one that itself holds a NaN or infinity, and the index of that element.
pub(super) fn guilty_tensor(
    model: &Model,
    stack: Stack,
    layer_idx: usize,
    hook: Hook,
) -> Option<(String, usize)> {
    let spec = model.spec.stack_of(stack);
    let suspects: Vec<NeededTensor<'_>> = match hook {
        // After the last block only the final norm and the LM head run; the LM head may be the embedding.
        Hook::Logits => {
            let mut suspects = spec.norm_tensors();
            suspects.extend(model.spec.head_tensors());
            suspects
        }
        // Before the first block only the embedding runs; cross-attention begins inside a block.
        Hook::ResidPre if stack != Stack::Cross => spec.embedding_tensors(),
        _ => spec.layer_tensors(layer_idx)?,
    };
    in_tensors(
        &model.checkpoint.tensors,
        suspects.into_iter().map(|(name, _)| name),
    )
}

/// Number of values scanned at a time: 16 MiB.
const SCAN_VALUES: usize = 4 << 20;

/// First of some tensors that holds a NaN or infinity, and the index of that element.
fn in_tensors<'a>(
    tensors: &Tensors,
    names: impl Iterator<Item = &'a str>,
) -> Option<(String, usize)> {
    names.into_iter().find_map(|name| {
        let view = tensors.get(name)?;
        // An unreadable tensor also stops the run itself.
        let [n_rows, row_shape @ ..] = view.shape() else {
            let values = view.widen().ok()?;
            return first_nonfinite(&values).map(|element| (name.to_owned(), element));
        };
        let row_len = row_shape.iter().product::<usize>().max(1);
        // An embedding table may be larger than all layers: read some rows at a time.
        let n_at_once = (SCAN_VALUES / row_len).max(1);
        (0..*n_rows).step_by(n_at_once).find_map(|start| {
            let rows = start..(start + n_at_once).min(*n_rows);
            let element = first_nonfinite(&view.widen_rows(rows).ok()?)?;
            Some((name.to_owned(), start * row_len + element))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_nonfinite_value_is_found_in_every_part_of_a_slice() {
        let mut values = vec![1.0; 5000];
        assert_eq!(first_nonfinite(&values), None);
        values[4097] = f32::NEG_INFINITY;
        assert_eq!(first_nonfinite(&values), Some(4097));
        values[1023] = f32::NAN;
        assert_eq!(first_nonfinite(&values), Some(1023));
    }
}
