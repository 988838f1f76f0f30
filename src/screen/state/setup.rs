//! The user's settings for the screen: colours, keys, limits.

use attnscope_checks::stats::index_of;
use attnscope_system::config::{Config, setting};
use attnscope_terminal::theme::{Depth, Diverging, Ground, Look, Sequential, Theme};

use super::keymap::Keymap;
use super::limits::Limits;
use super::protocol::Graphics;

/// Settings of the screen.
#[derive(Debug, Clone)]
pub struct Setup {
    pub theme: Theme,
    /// Whether to ask the terminal for its background, because no setting gives it.
    pub asks_ground: bool,
    pub keys: Keymap,
    pub statistic_idx: usize,
    pub has_clipboard: bool,
    pub takes_mouse: bool,
    pub graphics: Graphics,
    pub limits: Limits,
}

impl Default for Setup {
    fn default() -> Self {
        Self::with(&Config::default(), Keymap::default(), Depth::Truecolor)
    }
}

impl Setup {
    /// Reads the settings, for a terminal whose environment says how many colours it has.
    ///
    /// # Errors
    /// Every invalid key setting.
    pub fn of(
        config: &Config,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<String>> {
        let keys = Keymap::with(&config.keys)?;
        Ok(Self::with(config, keys, Depth::detect(variable)))
    }

    fn with(config: &Config, keys: Keymap, detected: Depth) -> Self {
        let (theme, background) = (
            config.get(&setting::THEME),
            config.get(&setting::BACKGROUND),
        );
        // The theme takes precedence over the background: the light theme is used on any background.
        let ground = Ground::named(&theme).or_else(|| Ground::named(&background));
        let depth = Depth::named(&config.get(&setting::COLOR)).unwrap_or(detected);
        let map = Sequential::named(&config.get(&setting::COLOR_MAP));
        let differences = Diverging::named(&config.get(&setting::DIFFERENCE_MAP));
        let look = Look {
            is_high_contrast: theme == "high-contrast",
            map: map.unwrap_or_default(),
            differences: differences.unwrap_or_default(),
        };
        Self {
            theme: Theme::with(ground.unwrap_or(Ground::Dark), depth, look),
            // Without colours the background makes no difference.
            asks_ground: ground.is_none() && depth != Depth::None,
            keys,
            statistic_idx: index_of(&config.get(&setting::STATISTIC)).unwrap_or(0),
            has_clipboard: config.get(&setting::CLIPBOARD),
            takes_mouse: config.get(&setting::MOUSE),
            graphics: Graphics::named(&config.get(&setting::GRAPHICS)).unwrap_or_default(),
            limits: Limits::of(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_system::config::{Kind, SETTINGS};

    fn of(text: &str) -> Setup {
        let config = Config::of_text("c.toml".as_ref(), text);
        assert_eq!(config.problems, Vec::<String>::new());
        let variable = |name: &str| (name == "TERM").then(|| "xterm-256color".to_owned());
        Setup::of(&config, variable).expect("no conflict")
    }

    #[test]
    fn settings_choose_theme_background_depth_and_maps() {
        let usual = of("");
        assert_eq!(
            (usual.theme.depth, usual.theme.ground),
            (Depth::Indexed, Ground::Dark)
        );
        assert!(usual.asks_ground && usual.has_clipboard && usual.takes_mouse);
        assert_eq!(usual.statistic_idx, 0);
        let light = of("[screen]\ntheme = \"light\"\nbackground = \"dark\"\ncolor = 16");
        assert_eq!(
            (light.theme.depth, light.theme.ground),
            (Depth::Sixteen, Ground::Light)
        );
        assert!(!light.asks_ground);
        let high = of(
            "[screen]\ntheme = \"high-contrast\"\nbackground = \"light\"\ncolor_map = \"magma\"\ndifference_map = \"purple-green\"",
        );
        assert_eq!(high.theme.ground, Ground::Light);
        assert_eq!(
            high.theme.look,
            Look {
                is_high_contrast: true,
                map: Sequential::Magma,
                differences: Diverging::PurpleGreen,
            }
        );
        let none = of("[screen]\ncolor = \"none\"\nclipboard = false\n[history]\nprompts_kib = 2");
        assert!(!none.asks_ground && !none.has_clipboard);
        assert_eq!(none.limits.prompt_bytes, 2048);
    }

    #[test]
    fn the_screen_knows_every_choice_that_settings_offer() {
        let choices = |name: &str| {
            let setting = SETTINGS.iter().find(|setting| setting.name == name);
            match setting.map(|setting| setting.kind) {
                Some(Kind::Choice(known)) => known.to_vec(),
                other => panic!("{name}: {other:?}"),
            }
        };
        let depths = Depth::NAMES.map(|(name, _)| name);
        assert_eq!(choices("color")[1..], depths);
        assert_eq!(
            choices("color_map"),
            Sequential::NAMES.map(|(name, _)| name)
        );
        assert_eq!(
            choices("difference_map"),
            Diverging::NAMES.map(|(name, _)| name)
        );
        assert!(
            choices("background")[1..]
                .iter()
                .all(|name| Ground::named(name).is_some())
        );
    }
}
