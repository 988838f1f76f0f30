//! The user's settings for the screen: colours, keys, limits.

use attnscope_checks::stats::index_of;
use attnscope_system::config::{Colour, Config, OwnTheme, setting};
use attnscope_terminal::theme::{Depth, Diverging, Ground, Inks, Look, Role, Sequential, Theme};
use ratatui::style::Color;

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
    /// Themes of the user's own: name, description, background if it has one, and colours.
    pub themes: Vec<OwnLook>,
}

/// A theme of the user's own.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnLook {
    pub name: String,
    pub about: String,
    /// Its background, unless it suits any.
    pub ground: Option<Ground>,
    pub look: Look,
}

impl OwnLook {
    /// Reads a theme of the settings; maps that it does not give are as they are.
    fn of(theme: &OwnTheme, usual: Look) -> Self {
        let colours = Role::ALL.into_iter().zip(theme.colours);
        let given = colours.filter_map(|(role, colour)| Some((role, colour?)));
        let inks = given.fold(Inks::default(), |inks, (role, colour)| match colour {
            Colour::Rgb([r, g, b]) => inks.with(role, Color::Rgb(r, g, b)),
            Colour::Own(nth) => inks.with_own(role, nth),
        });
        let map = theme.color_map.as_deref().and_then(Sequential::named);
        let differences = theme.difference_map.as_deref().and_then(Diverging::named);
        Self {
            name: theme.name.clone(),
            about: theme.about(),
            ground: Ground::named(&theme.inherits),
            look: Look {
                is_high_contrast: theme.inherits == "high-contrast",
                map: map.unwrap_or(usual.map),
                differences: differences.unwrap_or(usual.differences),
                inks,
            },
        }
    }
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
        let keys = Keymap::of(config)?;
        Ok(Self::with(config, keys, Depth::detect(variable)))
    }

    fn with(config: &Config, keys: Keymap, detected: Depth) -> Self {
        let (theme, background) = (
            config.get(&setting::THEME),
            config.get(&setting::BACKGROUND),
        );
        // The theme takes precedence over the background: the light theme is used on any background.
        let depth = Depth::named(&config.get(&setting::COLOR)).unwrap_or(detected);
        let map = Sequential::named(&config.get(&setting::COLOR_MAP));
        let differences = Diverging::named(&config.get(&setting::DIFFERENCE_MAP));
        let look = Look {
            is_high_contrast: theme == "high-contrast",
            map: map.unwrap_or_default(),
            differences: differences.unwrap_or_default(),
            inks: Inks::default(),
        };
        let themes = config.themes.iter();
        let themes: Vec<OwnLook> = themes.map(|own| OwnLook::of(own, look)).collect();
        let own = themes.iter().find(|own| own.name == theme);
        let (ground, look) = match own {
            Some(own) => (own.ground, own.look),
            None => (Ground::named(&theme), look),
        };
        let ground = ground.or_else(|| Ground::named(&background));
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
            themes,
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
                inks: Inks::default(),
            }
        );
        let none = of("[screen]\ncolor = \"none\"\nclipboard = false\n[history]\nprompts_kib = 2");
        assert!(!none.asks_ground && !none.has_clipboard);
        assert_eq!(none.limits.prompt_bytes, 2048);
    }

    #[test]
    fn a_theme_of_the_user_is_the_one_it_inherits_with_other_colours() {
        let set = |theme: &str| {
            of(&format!(
                "[screen]\ntheme = \"{theme}\"\n[themes.dusk]\ninherits = \"light\"\naccent = \"#ff8800\"\n"
            ))
        };
        let dusk = set("dusk");
        assert_eq!(dusk.theme.ground, Ground::Light);
        assert!(!dusk.asks_ground);
        let light = set("light");
        assert_ne!(dusk.theme.accent(), light.theme.accent());
        assert_eq!(dusk.theme.bad(), light.theme.bad());
        assert_eq!(light.themes[0].about, "light, accent #ff8800");
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
