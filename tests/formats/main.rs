//! What files hold, whole and damaged.

mod align_files;
mod bad_checkpoint;
mod captured;
mod captured_damage;
mod changing_files;
mod damaged_bytes;
mod gguf_configs;
mod gguf_damage;
mod gguf_files;
mod gguf_texts;
mod homegrown_files;
mod hostile_tokenizers;
mod judged_files;
mod judged_masks;
mod judged_traces;
mod odd_configs;
mod ports;
mod probed;
mod pytorch_damaged;
mod pytorch_files;
mod pytorch_refused;
mod quantised_files;
mod quantised_refused;
mod reading_settings;
mod spellings;
mod tokenizer_files;
