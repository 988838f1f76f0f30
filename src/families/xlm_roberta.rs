//! XLM-RoBERTa: RoBERTa with a vocabulary of a hundred languages.

use super::layouts::Keys;
use super::{Family, roberta};

pub const FAMILY: Family =
    Family::encoder("xlm-roberta", "XLMRoberta", || roberta::like("roberta."))
        .with_keys(Keys::Bert);
