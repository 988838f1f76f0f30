//! The program as a person or a script runs it.

mod agreeing_verdicts;
mod bad_input;
mod baselines;
mod beyond_context;
mod check_boundaries;
mod check_command;
mod check_probes;
mod checks;
mod commands;
mod demos;
mod device_choice;
mod diff_command;
mod diff_pairs;
mod export_data;
mod generated_docs;
mod history_command;
mod hostile_names;
mod lab_command;
mod order_probe;
mod places;
mod plots;
mod readings;
mod report_formats;
mod schemas;
mod sets;
mod several_checkpoints;
#[cfg(unix)]
mod signals;
mod sweep_checkpoint;
mod sweep_command;
mod targets_of_output;
mod tidy;
mod verdict_formats;
mod verify_command;
mod watch_command;
mod weights_alone;
