//! The choice of the vendor in use among all that are found, and the report on them.

use std::cmp::Reverse;

use crate::error::{Error, Result};

use super::entry::{Settings, VendorEntry};
use super::missing::{Absent, Missing, SOURCE, absent};
use crate::descriptions::Names;

type Entry = &'static dyn VendorEntry;

/// One line of the report on vendors. Reporting opens no vendor and loads no library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendorReport {
    /// The vendor's name.
    pub name: &'static str,
    /// The source of the vendor: `built in`, the path of its manifest, or [`super::missing::SOURCE`].
    pub source: String,
    /// The number of devices the vendor would show, 0 if it cannot be used; `None` while nobody has tried.
    pub devices: Option<usize>,
    /// Whether the vendor is the one in use.
    pub chosen: bool,
    /// The reason why the vendor is chosen, is not chosen, or cannot be used.
    pub reason: String,
}

/// A vendor among the others.
struct Candidate {
    entry: Entry,
    /// The reason why the vendor is never used: its manifest cannot be, or takes a name that another vendor has.
    refused: Option<String>,
    /// Whether a framework of this process serves its devices, and those of no other vendor.
    preferred: bool,
}

impl Candidate {
    fn name(&self) -> &'static str {
        self.entry.name()
    }

    fn source(&self) -> String {
        let origin = self.entry.origin();
        origin.map_or_else(|| "built in".into(), |path| path.display().to_string())
    }

    /// The reason why the vendor is not tried when nobody asks for it by name, if there is one.
    fn passed_over(&self) -> Option<String> {
        let passed_over = self.entry.passed_over();
        passed_over.filter(|_| !self.preferred)
    }

    /// The result of [`Self::survey`] where it is known without running code of a library.
    fn known(&self, settings: &Settings) -> Option<Result<usize, String>> {
        match &self.refused {
            Some(reason) => Some(Err(reason.clone())),
            None => self.entry.known(settings),
        }
    }

    fn survey(&self, settings: &Settings) -> Result<usize, String> {
        match &self.refused {
            Some(reason) => Err(reason.clone()),
            None => self.entry.survey(settings),
        }
    }
}

/// The vendor that [`Catalogue::select`] would return, as far as it is known without running code of a library.
enum Outlook<'c> {
    Chosen(&'c Candidate),
    /// The vendor that is tried next, whose outcome is not known.
    Untried(&'c Candidate),
    None,
}

/// All vendors that are found, the best first, and the distributions of vendors that are not.
pub(super) struct Catalogue {
    found: Vec<Candidate>,
    absent: Vec<Absent>,
    preferred: Option<String>,
}

impl Catalogue {
    /// The vendor that is `preferred` comes before all others.
    pub(super) fn new(mut entries: Vec<Entry>, preferred: Option<&str>) -> Self {
        let is_preferred = |entry: Entry| Some(entry.name()) == preferred;
        entries.sort_by_key(|entry| {
            let preferred = Reverse(is_preferred(*entry));
            (
                preferred,
                Reverse(entry.rank()),
                entry.name(),
                entry.origin(),
            )
        });
        let refused = |entry: &Entry| {
            let broken = entry.broken().map(str::to_owned);
            broken.or_else(|| taken(*entry, &entries))
        };
        let candidates = entries.iter().map(|entry| Candidate {
            entry: *entry,
            refused: refused(entry),
            preferred: is_preferred(*entry),
        });
        Self {
            found: candidates.collect(),
            absent: absent(entries.iter().map(|entry| entry.name())),
            preferred: preferred.map(str::to_owned),
        }
    }

    /// The vendor with this name, or else with this alias. Fails with the reason when two have the alias.
    fn find(&self, name: &str) -> Result<Option<&Candidate>, String> {
        let first = |found: &[&'_ Candidate]| {
            let usable = found.iter().position(|each| each.refused.is_none());
            usable.unwrap_or(0)
        };
        let named: Vec<_> = self
            .found
            .iter()
            .filter(|each| each.name() == name)
            .collect();
        if !named.is_empty() {
            return Ok(Some(named[first(&named)]));
        }
        let is_alias = |each: &&Candidate| each.entry.aliases().iter().any(|alias| alias == name);
        let aliased: Vec<_> = self.found.iter().filter(is_alias).collect();
        let usable = aliased.iter().filter(|each| each.refused.is_none());
        let usable: Vec<_> = usable
            .map(|each| format!("`{}` ({})", each.name(), each.source()))
            .collect();
        match (&aliased[..], &usable[..]) {
            ([], _) => Ok(None),
            (_, [_, _, ..]) => Err(format!(
                "`{name}` is another name of {}",
                usable.join(" and ")
            )),
            _ => Ok(Some(aliased[first(&aliased)])),
        }
    }

    /// The names of the vendors. A vendor that is never used has its name alone.
    pub(super) fn names(&self) -> Names {
        Names::new(self.found.iter().map(|each| {
            let aliases = each.entry.aliases().iter().map(String::as_str);
            let aliases = match each.refused {
                None => aliases.collect(),
                Some(_) => Vec::new(),
            };
            (each.name(), aliases)
        }))
    }

    /// The vendor called `name`, or the first that can be used. A name is never replaced by another.
    pub(super) fn select(&self, name: Option<&str>, settings: &Settings) -> Result<Entry> {
        let Some(name) = name else {
            self.check_absent()?;
            let tried = self
                .found
                .iter()
                .filter(|each| each.passed_over().is_none());
            let best = tried.into_iter().find(|each| each.survey(settings).is_ok());
            return best
                .map(|best| best.entry)
                .ok_or_else(|| self.none("no vendor is available".into(), settings));
        };
        let found = self
            .find(name)
            .map_err(|reason| self.none(reason, settings))?;
        let Some(found) = found else {
            let (message, lead) = match self.absent.iter().find(|one| one.is_called(name)) {
                Some(absent) => (
                    format!("vendor `{name}` cannot be used: {}", absent.reason()),
                    Some(format!("{};", absent.install())),
                ),
                None => (
                    format!("there is no vendor `{name}`"),
                    self.names().hint_at_found(name),
                ),
            };
            let error = self.none(message, settings);
            let hint = error.hint().unwrap_or_default().to_owned();
            return Err(match lead {
                Some(lead) => error.with_hint(format!("{lead} {hint}")),
                None => error,
            });
        };
        match found.survey(settings) {
            Err(reason) => Err(self.none(
                format!("vendor `{name}` cannot be used: {reason}"),
                settings,
            )),
            Ok(_) => Ok(found.entry),
        }
    }

    /// Fails where a framework of this process serves the devices of a vendor whose distribution is missing, and warns of
    /// every other chip without one.
    fn check_absent(&self) -> Result<()> {
        for absent in &self.absent {
            let preferred = self.preferred.as_deref();
            if !preferred.is_some_and(|name| absent.is_called(name)) {
                absent.warn();
            } else if let Some(missing) = absent.missing() {
                let (name, sign) = (missing.name, missing.sign);
                let message = format!(
                    "the framework of this process serves devices of vendor `{name}`, this machine has {sign}, and {}",
                    absent.remedy()
                );
                return Err(Error::config("FLAGOS_VENDOR", message)
                    .with_hint("FLAGOS_VENDOR=host leaves the devices alone"));
            }
        }
        Ok(())
    }

    /// The vendors whose chip this machine has, and whose distribution is not installed.
    pub(super) fn missing(&self) -> Vec<Missing> {
        self.absent.iter().filter_map(Absent::missing).collect()
    }

    /// The vendor that has this name, and can be used as far as its manifest goes.
    pub(super) fn named(&self, name: &str) -> Option<Entry> {
        let mut usable = self.found.iter().filter(|each| each.refused.is_none());
        let found = usable.find(|each| each.name() == name)?;
        Some(found.entry)
    }

    /// The error that there is no such vendor, with those that there are.
    fn none(&self, message: String, settings: &Settings) -> Error {
        let mut available = Vec::new();
        let mut untried = Vec::new();
        for each in &self.found {
            match each.known(settings) {
                Some(Ok(_)) => available.push(each.name()),
                Some(Err(_)) => {}
                None => untried.push(each.name()),
            }
        }
        let mut hint = format!("available here: {}", available.join(", "));
        if !untried.is_empty() {
            hint += &format!("; not tried yet: {}", untried.join(", "));
        }
        hint += "; unset it to take the best one; `flagos devices` says more";
        Error::config("FLAGOS_VENDOR", message).with_hint(hint)
    }

    fn outlook(&self, name: Option<&str>, settings: &Settings) -> Outlook<'_> {
        let judge = |each| match Candidate::known(each, settings) {
            Some(Ok(_)) => Outlook::Chosen(each),
            Some(Err(_)) => Outlook::None,
            None => Outlook::Untried(each),
        };
        match name {
            Some(name) => self.find(name).ok().flatten().map_or(Outlook::None, judge),
            None => {
                let tried = self
                    .found
                    .iter()
                    .filter(|each| each.passed_over().is_none());
                let outlooks = tried.map(judge);
                outlooks
                    .into_iter()
                    .find(|outlook| !matches!(outlook, Outlook::None))
                    .unwrap_or(Outlook::None)
            }
        }
    }

    /// Reports on every vendor. `name` is that of `FLAGOS_VENDOR`.
    pub(super) fn report(&self, name: Option<&str>, settings: &Settings) -> Vec<VendorReport> {
        let outlook = self.outlook(name, settings);
        let lines = self.found.iter().map(|each| {
            let known = each.known(settings);
            let (chosen, reason) = match &known {
                Some(Err(reason)) => (false, reason.clone()),
                _ => why(each, name, &outlook),
            };
            VendorReport {
                name: each.name(),
                source: each.source(),
                devices: known.map(|known| known.unwrap_or(0)),
                chosen,
                reason: reason.replace(char::is_control, " "),
            }
        });
        let absent = self.absent.iter().filter_map(|absent| {
            let missing = absent.missing()?;
            Some(VendorReport {
                name: missing.name,
                source: SOURCE.into(),
                devices: Some(0),
                chosen: false,
                reason: format!("this machine has {}, and {}", missing.sign, absent.remedy()),
            })
        });
        lines.chain(absent).collect()
    }
}

/// Whether a vendor that is not known to be unusable is chosen, and why.
fn why(each: &Candidate, name: Option<&str>, outlook: &Outlook) -> (bool, String) {
    let is = |other: &Candidate| std::ptr::eq(each, other);
    if let (None, Some(reason)) = (name, each.passed_over()) {
        return (false, reason);
    }
    match (name, outlook) {
        (Some(_), Outlook::Chosen(chosen)) if is(chosen) => {
            (true, "FLAGOS_VENDOR asks for it".into())
        }
        (Some(_), Outlook::Untried(chosen)) if is(chosen) => (
            true,
            "FLAGOS_VENDOR asks for it; its library is tried at the first use of a device".into(),
        ),
        (Some(_), Outlook::Chosen(chosen) | Outlook::Untried(chosen)) => {
            (false, format!("FLAGOS_VENDOR asks for {}", chosen.name()))
        }
        (Some(name), Outlook::None) => (false, format!("`{name}` is asked for")),
        (None, Outlook::Chosen(chosen)) if is(chosen) => {
            (true, "the best vendor available here".into())
        }
        (None, Outlook::Chosen(chosen)) => (
            false,
            format!(
                "{} is preferred; FLAGOS_VENDOR={} takes it",
                chosen.name(),
                each.name()
            ),
        ),
        (None, Outlook::Untried(next)) if is(next) => (
            false,
            "there may be a device; its library is tried at the first use of a device".into(),
        ),
        (None, Outlook::Untried(next)) => (false, format!("{} is tried first", next.name())),
        (None, Outlook::None) => (false, "not chosen".into()),
    }
}

/// The reason why a manifest's vendor cannot have its name: a built-in vendor has it or one of its aliases, or another
/// manifest has the name too.
fn taken(entry: Entry, entries: &[Entry]) -> Option<String> {
    let origin = entry.origin()?;
    let names = |entry: Entry| {
        std::iter::once(entry.name()).chain(entry.aliases().iter().map(String::as_str))
    };
    for built_in in entries.iter().filter(|other| other.origin().is_none()) {
        let name = names(entry).find(|name| names(*built_in).any(|known| known == *name));
        if let Some(name) = name {
            let vendor = built_in.name();
            return Some(format!(
                "`{name}` is a name of the built-in vendor `{vendor}`: choose another one"
            ));
        }
    }
    let others = entries
        .iter()
        .filter(|other| other.broken().is_none() && other.name() == entry.name());
    let other = others
        .filter_map(|other| other.origin())
        .find(|other| *other != origin)?;
    let (name, origin, other) = (entry.name(), origin.display(), other.display());
    Some(format!(
        "{origin} and {other} both tell of a vendor `{name}`: take one of them away"
    ))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, LazyLock, OnceLock};

    use super::*;
    use crate::descriptions::Description;
    use crate::runtime::Vendor;
    use crate::runtime::sync::AtomicU64;
    use crate::vendors::entry::BuiltIn;
    use crate::vendors::host;

    static BETTER: BuiltIn = BuiltIn {
        description: || {
            static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| Description {
                name: "better".into(),
                aliases: vec!["best".into()],
                ..(host::ENTRY.description)().clone()
            });
            &DESCRIPTION
        },
        rank: 9,
        survey: |settings| {
            let seed = settings.host.seed;
            seed.map_or(Err("its driver is not installed".into()), |_| Ok(1))
        },
        ..host::ENTRY
    };
    static HOST: BuiltIn = host::ENTRY;
    static BUILT_IN: [Entry; 2] = [&BETTER, &HOST];

    #[test]
    fn the_best_available_is_chosen() {
        let mut settings = Settings::default();
        let chosen = |settings: &Settings| all(&[]).select(None, settings).map(|e| e.name());
        assert_eq!(chosen(&settings).expect("host"), "host");
        settings.host.seed = Some(1);
        assert_eq!(chosen(&settings).expect("better"), "better");
    }

    #[test]
    fn a_name_is_never_replaced() {
        let settings = Settings::default();
        for (name, says) in [
            (
                "metax",
                "vendor `metax` cannot be used: the distribution flagos-metax is not installed",
            ),
            ("npu", "pip install 'flagos[ascend]'"),
            ("rocm", "there is no vendor `rocm`"),
            (
                "bettr",
                "there is no vendor `bettr`; did you mean `better`? available here: host",
            ),
            (
                "better",
                "vendor `better` cannot be used: its driver is not installed",
            ),
            (
                "best",
                "vendor `best` cannot be used: its driver is not installed",
            ),
        ] {
            let error = all(&[]).select(Some(name), &settings).expect_err("refused");
            let text = error.to_string();
            assert_eq!(error.kind(), crate::ErrorKind::Config);
            assert!(
                text.contains(says) && text.contains("available here: host;"),
                "{text}"
            );
        }
        let host = all(&[]).select(Some("host"), &settings).expect("host");
        assert_eq!(host.name(), "host");
    }

    #[test]
    fn what_a_framework_serves_comes_before_what_is_better() {
        let mut settings = Settings::default();
        settings.host.seed = Some(1);
        let preferring = |name| Catalogue::new(BUILT_IN.to_vec(), Some(name));
        let chosen = |name| preferring(name).select(None, &settings).map(|e| e.name());
        assert_eq!(chosen("better").expect("better"), "better");
        assert_eq!(chosen("host").expect("host"), "host");
        // A name counts for more.
        let chosen = preferring("host").select(Some("better"), &settings);
        assert_eq!(chosen.expect("better").name(), "better");
        // Unusable vendors are skipped.
        let best = preferring("better").select(None, &Settings::default());
        assert_eq!(best.expect("host").name(), "host");
        assert!(crate::vendors::prefer("no name").is_err());
        // The framework's word overrides the signs of the machine.
        let absent = leaked(Listed {
            absent: true,
            trial: Some(Ok(1)),
            ..listed("absent", "/absent", 1)
        });
        let entries = [&BUILT_IN[..], &[absent]].concat();
        let preferred = Catalogue::new(entries, Some("absent")).select(None, &settings);
        assert_eq!(preferred.expect("it").name(), "absent");
    }

    #[test]
    fn a_report_says_why() {
        let mut settings = Settings::default();
        let lines = |name, settings: &Settings| lines(&all(&[]), name, settings);
        let best = "the best vendor available here";
        assert_eq!(
            lines(None, &settings),
            [
                "better false: its driver is not installed".to_owned(),
                format!("host true: {best}"),
            ]
        );
        settings.host.seed = Some(1);
        assert_eq!(
            lines(None, &settings),
            [
                format!("better true: {best}"),
                "host false: better is preferred; FLAGOS_VENDOR=host takes it".to_owned(),
            ]
        );
        assert_eq!(
            lines(Some("host"), &settings),
            [
                "better false: FLAGOS_VENDOR asks for host",
                "host true: FLAGOS_VENDOR asks for it",
            ]
        );
        assert_eq!(
            lines(Some("best"), &settings),
            [
                "better true: FLAGOS_VENDOR asks for it",
                "host false: FLAGOS_VENDOR asks for better",
            ]
        );
        assert_eq!(
            lines(Some("metax"), &settings),
            [
                "better false: `metax` is asked for",
                "host false: `metax` is asked for",
            ]
        );
    }

    /// A vendor of a manifest, as far as its selection goes.
    #[derive(Debug, Default)]
    struct Listed {
        name: &'static str,
        aliases: Vec<String>,
        origin: &'static str,
        rank: i32,
        absent: bool,
        survey: OnceLock<std::result::Result<usize, String>>,
        trial: Option<std::result::Result<usize, String>>,
    }

    impl VendorEntry for Listed {
        fn name(&'static self) -> &'static str {
            self.name
        }

        fn aliases(&'static self) -> &'static [String] {
            &self.aliases
        }

        fn origin(&self) -> Option<&Path> {
            Some(Path::new(self.origin))
        }

        fn rank(&self) -> i32 {
            self.rank
        }

        fn passed_over(&self) -> Option<String> {
            self.absent.then(|| "no device file".into())
        }

        fn survey(&'static self, _: &Settings) -> std::result::Result<usize, String> {
            let trial = self.trial.clone().expect("it is never tried");
            self.survey.get_or_init(|| trial).clone()
        }

        fn known(&'static self, _: &Settings) -> Option<std::result::Result<usize, String>> {
            self.survey.get().cloned()
        }

        fn description(&'static self) -> crate::Result<&'static Description> {
            unreachable!("nobody asks for it here")
        }

        fn open(
            &'static self,
            _: &Settings,
            _: &'static AtomicU64,
        ) -> crate::Result<Arc<dyn Vendor>> {
            unreachable!("nobody opens it here")
        }
    }

    fn listed(name: &'static str, origin: &'static str, rank: i32) -> Listed {
        Listed {
            name,
            origin,
            rank,
            ..Listed::default()
        }
    }

    fn leaked(listed: Listed) -> Entry {
        Box::leak(Box::new(listed))
    }

    fn all(others: &[Entry]) -> Catalogue {
        Catalogue::new([&BUILT_IN[..], others].concat(), None)
    }

    fn lines(catalogue: &Catalogue, name: Option<&str>, settings: &Settings) -> Vec<String> {
        let reports = catalogue.report(name, settings);
        let line =
            |report: VendorReport| format!("{} {}: {}", report.name, report.chosen, report.reason);
        reports.into_iter().map(line).collect()
    }

    #[test]
    fn what_is_not_asked_for_is_tried_by_rank_and_skipped_when_it_fails() {
        let settings = Settings::default();
        let absent = leaked(Listed {
            absent: true,
            ..listed("absent", "/absent", 90)
        });
        let broken = leaked(Listed {
            trial: Some(Err("no driver".into())),
            ..listed("broken", "/broken", 80)
        });
        let chip = leaked(Listed {
            trial: Some(Ok(2)),
            ..listed("chip", "/chip", 70)
        });
        let later = leaked(listed("later", "/later", 60));
        let catalogue = all(&[later, chip, broken, absent]);

        let before = [
            "absent false: no device file",
            "broken false: there may be a device; its library is tried at the first use of a device",
            "chip false: broken is tried first",
            "later false: broken is tried first",
            "better false: its driver is not installed",
            "host false: broken is tried first",
        ];
        assert_eq!(lines(&catalogue, None, &settings), before);
        assert_eq!(
            catalogue.select(None, &settings).expect("chip").name(),
            "chip"
        );
        let after = [
            "absent false: no device file",
            "broken false: no driver",
            "chip true: the best vendor available here",
            "later false: chip is preferred; FLAGOS_VENDOR=later takes it",
            "better false: its driver is not installed",
            "host false: chip is preferred; FLAGOS_VENDOR=host takes it",
        ];
        assert_eq!(lines(&catalogue, None, &settings), after);
        let devices: Vec<_> = catalogue
            .report(None, &settings)
            .iter()
            .map(|r| r.devices)
            .collect();
        assert_eq!(devices, [None, Some(0), Some(2), None, Some(0), Some(1)]);
    }

    #[test]
    fn a_vendor_that_is_asked_for_is_tried_whatever_the_machine_shows() {
        let settings = Settings::default();
        let absent = leaked(Listed {
            absent: true,
            trial: Some(Ok(1)),
            ..listed("absent", "/absent", 90)
        });
        let catalogue = all(&[absent]);
        let line = |catalogue: &Catalogue| lines(catalogue, Some("absent"), &settings)[0].clone();
        assert_eq!(
            line(&catalogue),
            "absent true: FLAGOS_VENDOR asks for it; its library is tried at the first use of a device"
        );
        assert_eq!(
            catalogue
                .select(Some("absent"), &settings)
                .expect("it")
                .name(),
            "absent"
        );
        assert_eq!(line(&catalogue), "absent true: FLAGOS_VENDOR asks for it");
        let error = catalogue
            .select(Some("other"), &settings)
            .expect_err("none");
        assert!(
            error.to_string().contains("available here: absent, host;"),
            "{error}"
        );
    }

    #[test]
    fn a_name_that_two_manifests_give_is_an_error_for_that_name_alone() {
        let settings = Settings::default();
        let (first, second) = (
            leaked(listed("chip", "/a.toml", 70)),
            leaked(listed("chip", "/b.toml", 90)),
        );
        let other = leaked(Listed {
            trial: Some(Ok(1)),
            ..listed("other", "/c.toml", 60)
        });
        let catalogue = all(&[first, second, other]);
        let error = catalogue
            .select(Some("chip"), &settings)
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains("/b.toml and /a.toml both tell of a vendor `chip`"),
            "{error}"
        );
        assert_eq!(
            catalogue.select(None, &settings).expect("other").name(),
            "other"
        );
        assert_eq!(
            catalogue
                .select(Some("host"), &settings)
                .expect("host")
                .name(),
            "host"
        );
    }

    #[test]
    fn names_of_built_in_vendors_are_theirs() {
        let mut settings = Settings::default();
        settings.host.seed = Some(1);
        let same = leaked(listed("better", "/a.toml", 70));
        let alias = leaked(Listed {
            aliases: vec!["best".into()],
            ..listed("other", "/b.toml", 70)
        });
        let catalogue = all(&[same, alias]);
        let lines = lines(&catalogue, None, &settings);
        assert_eq!(
            lines[0],
            "better false: `better` is a name of the built-in vendor `better`: choose another one"
        );
        assert_eq!(
            lines[1],
            "other false: `best` is a name of the built-in vendor `better`: choose another one"
        );
        for name in ["better", "best"] {
            let chosen = catalogue.select(Some(name), &settings).expect("built in");
            assert!(chosen.origin().is_none());
        }
        let error = catalogue
            .select(Some("other"), &settings)
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains("vendor `other` cannot be used: `best` is a name"),
            "{error}"
        );
    }

    #[test]
    fn an_alias_that_two_vendors_have_is_an_error() {
        let settings = Settings::default();
        let npu = |name, origin| {
            leaked(Listed {
                aliases: vec!["npu".into()],
                trial: Some(Ok(1)),
                ..listed(name, origin, 70)
            })
        };
        let catalogue = all(&[npu("one", "/one.toml"), npu("two", "/two.toml")]);
        let error = catalogue
            .select(Some("npu"), &settings)
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains("`npu` is another name of `one` (/one.toml) and `two` (/two.toml)"),
            "{error}"
        );
        assert_eq!(
            catalogue
                .select(Some("two"), &settings)
                .expect("two")
                .name(),
            "two"
        );
        // A name comes before an alias.
        let named = leaked(Listed {
            trial: Some(Ok(1)),
            ..listed("npu", "/npu.toml", 1)
        });
        let catalogue = all(&[npu("one", "/one.toml"), named]);
        assert_eq!(
            catalogue
                .select(Some("npu"), &settings)
                .expect("npu")
                .name(),
            "npu"
        );
    }
}
