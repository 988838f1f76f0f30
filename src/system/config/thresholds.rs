//! Thresholds of checks that the settings move.

use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_checks::Thresholds;
use toml::de::{DeTable, DeValue};

use super::read::{File, Set};
use super::typed::{kind, number};

/// Section of the thresholds.
pub(super) const THRESHOLDS: &str = "thresholds";

impl File<'_> {
    pub(super) fn take_thresholds(&mut self, checks: &DeTable<'_>) {
        let names: Vec<String> = Thresholds::default().names().collect();
        for (check, values) in checks {
            let at = check.span().start;
            let check = check.get_ref().as_ref();
            let DeValue::Table(values) = values.get_ref() else {
                let found = kind(values.get_ref());
                let section = format!("[{THRESHOLDS}.{check}]");
                self.problem(
                    at,
                    &format!("{THRESHOLDS}.{check}: expected a section {section}, found {found}"),
                );
                continue;
            };
            for (name, value) in values {
                let at = name.span().start;
                let name = format!("{check}.{}", name.get_ref());
                if !names.contains(&name) {
                    let meant = did_you_mean(&name, names.iter().map(String::as_str));
                    let what = format!(
                        "{THRESHOLDS}.{name} is not known{meant}; attnscope thresholds lists them"
                    );
                    self.problem(at, &what);
                    continue;
                }
                match number(value.get_ref()) {
                    Some(value) => {
                        let origin = self.origin(at);
                        self.config.thresholds.insert(name, Set { value, origin });
                    }
                    None => {
                        let found = kind(value.get_ref());
                        self.problem(
                            at,
                            &format!("{THRESHOLDS}.{name}: expected a number, found {found}"),
                        );
                    }
                }
            }
        }
    }
}
