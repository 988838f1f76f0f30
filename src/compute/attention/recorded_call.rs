//! What a recorder noted of one call of attention, beside its numbers.

use std::collections::BTreeMap;

/// What the capturing code recorded about a layer's call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedCall {
    /// The axis over which the softmax ran: `keys`, `queries`, `heads` or `batch`.
    pub axis: Option<String>,
    pub dropout_p: Option<f64>,
    pub is_training: Option<bool>,
    pub is_causal: Option<bool>,
    pub is_deterministic: Option<bool>,
    /// Heads were mixed after the softmax (talking heads), so that a pattern is no softmax of its scores.
    pub is_mixed: bool,
    /// Its queries are calls of one query each over the same keys, as steps of a decoder are: what each sees follows from the steps before it.
    pub is_stepwise: bool,
    /// All keys but one at most weigh the same vector.
    pub has_alike_values: bool,
    /// Number of key columns that took part in the softmax and were cut off afterwards.
    pub sink_columns: Option<usize>,
    /// The factor that the call applied to q·k, and the size of a head, where the call knew them.
    pub scale: Option<f64>,
    pub d_head: Option<usize>,
    /// Where the code weighs values, of attention without a call of a softmax: `model.py:23`.
    pub place: Option<String>,
    /// Shape of the softmax input, before one sequence of the batch was selected.
    pub shape: Vec<usize>,
    /// How positions enter, where the recorder found that.
    pub positions: Option<RecordedPositions>,
    /// Whether the axis of heads was moved between the layers with weights and the attention, or heads were mixed with positions
    /// by a reshape: of queries (`rot_q`), keys (`rot_k`), values (`v`) and outputs (`z`), as far as the numbers tell.
    pub heads_moved: BTreeMap<String, bool>,
}

/// How queries, keys, values and scores of one layer get their positions, as far as the numbers tell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedPositions {
    /// Which are rotated from position to position: `queries`, `keys`, `both` or `none`.
    pub rotated: Option<String>,
    /// Values are rotated, and the outputs of heads are not turned back.
    pub has_rotated_values: bool,
    /// Queries or keys are turned pair by pair, and the two features of a pair by angles that differ.
    pub has_unlike_pairs: bool,
    /// The input of W_Q is rotated, and that of W_V is not.
    pub is_rotated_before: bool,
    /// What the scores gain per position of distance: the least and the most of any head. Set if nothing but a factor times q·k is
    /// in them beside that.
    pub slopes: Option<(f64, f64)>,
}
