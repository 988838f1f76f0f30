//! What is computed, against references and definitions that are independent of it.

mod align;
mod bf16_weights;
mod broken_model;
mod cache_parity;
mod charts;
mod contribution;
mod device_attention;
mod device_models;
mod effect;
mod effect_demo;
mod effect_judged;
mod history;
mod lab;
mod lab_match;
mod lstm_seq2seq;
mod oracle;
mod padded_statistics;
mod plain_math;
mod quality;
mod row_block;
mod statistics;
mod sweep;
mod translators;
mod verify;
mod what_if;
mod writing_stops;
