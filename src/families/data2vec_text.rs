//! Data2Vec for text: RoBERTa under names of its own.

use super::{Family, roberta};

pub const FAMILY: Family = Family::encoder("data2vec-text", "Data2VecText", || {
    roberta::like("data2vec_text.")
});
