//! `attnscope config`: every setting in force and its origin, also if the settings file has errors.

use anyhow::{Result, bail};
use attnscope_report::{Output, SettingRow, SettingsDocument, printable, text_table};
use attnscope_screen::{Keymap, keys_in_force};
use attnscope_system::config::{Config, SETTINGS, Value};
use clap::{Subcommand, ValueEnum};

use super::Ended;
use super::settings::{ScreenArgs, config};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// How to print them
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    screen: ScreenArgs,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Command {
    /// Print the path of the settings file, even if it does not exist
    Path,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub fn run(args: &Args) -> Result<Ended> {
    if args.command.is_some() {
        return path().map(|()| Ended::Clean);
    }
    let config = args.screen.config()?;
    let document = document(&config);
    let bytes = match args.format {
        Format::Json => {
            let mut bytes = serde_json::to_vec_pretty(&document)?;
            bytes.push(b'\n');
            bytes
        }
        Format::Text => printable(text(&config, &document).as_bytes()),
    };
    Output::Stdout.write(&bytes)?;
    for problem in &config.problems {
        super::progress::failed(problem);
    }
    Ok(if config.problems.is_empty() {
        Ended::Clean
    } else {
        Ended::Partly
    })
}

fn path() -> Result<()> {
    let Some(path) = &config().path else {
        bail!(
            "there is no file of settings: ATTNSCOPE_CONFIG is empty, or neither XDG_CONFIG_HOME nor HOME is set"
        );
    };
    let line = format!("{}\n", path.display());
    Ok(Output::Stdout.write(&printable(line.as_bytes()))?)
}

/// Returns every value in force.
fn document(config: &Config) -> SettingsDocument {
    let settings = SETTINGS.iter().map(|setting| {
        let set = config.of(setting.section, setting.name);
        SettingRow::new(setting.path(), &set.value, &set.origin)
    });
    let in_force = config.thresholds().named();
    let thresholds = in_force.into_iter().map(|(name, value)| {
        let set = config.thresholds.get(&name);
        let origin = set.map_or(attnscope_system::config::Origin::Default, |set| {
            set.origin.clone()
        });
        SettingRow::number(format!("thresholds.{name}"), value, &origin)
    });
    let keymap = Keymap::of(config).unwrap_or_default();
    let keys = keys_in_force(&keymap).into_iter().map(|(action, keys)| {
        let change = config.keys.iter().find(|change| change.action == action);
        let origin = change.filter(|_| keymap.is_of(&config.keys));
        let origin = origin.map_or(attnscope_system::config::Origin::Default, |change| {
            change.origin.clone()
        });
        SettingRow::keys(format!("keys.{action}"), keys, &origin)
    });
    let commands = config.commands.iter().map(|command| {
        let name = format!("commands.{}", command.name);
        SettingRow::keys(name, command.words.clone(), &command.origin)
    });
    let themes = config.themes.iter().map(|theme| {
        let name = format!("themes.{}", theme.name);
        SettingRow::new(name, &Value::Text(theme.about()), &theme.origin)
    });
    let own = commands.chain(themes);
    SettingsDocument {
        version: 1,
        file: config.path.as_ref().map(|path| path.display().to_string()),
        is_there: config.is_there,
        settings: settings.chain(thresholds).chain(keys).chain(own).collect(),
        problems: config.problems.clone(),
    }
}

/// Returns the settings as a table. Of the many thresholds and keys, only changed ones are listed.
fn text(config: &Config, document: &SettingsDocument) -> String {
    let file = match (&config.path, config.is_there) {
        (Some(path), true) => path.display().to_string(),
        (Some(path), false) => format!("{} (not there)", path.display()),
        (None, _) => "none".to_owned(),
    };
    let is_listed = |row: &&SettingRow| {
        let is_of_many = row.name.starts_with("thresholds.") || row.name.starts_with("keys.");
        !is_of_many || row.origin != "default"
    };
    let rows: Vec<Vec<String>> = document
        .settings
        .iter()
        .filter(is_listed)
        .map(|row| vec![row.name.clone(), row.shown(), row.origin.clone()])
        .collect();
    let n_left = document.settings.len() - rows.len();
    format!(
        "file: {file}\n\n{}\n{n_left} thresholds and keys are as by default: --format json lists them\n",
        text_table(&["setting", "value", "from"], &rows)
    )
}
