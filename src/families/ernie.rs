//! ERNIE: BERT under names of its own.

use super::reading::bert_like::BertLike;
use super::{Family, bert};

pub const FAMILY: Family = Family::encoder("ernie", "Ernie", || BertLike {
    must_be_off: &[(
        "use_task_id",
        "embeddings of tasks are not read in this family",
    )],
    ..BertLike::plain("ernie.", bert::HEAD)
});
