//! The vendors of this build, and the choice of the one in use.
//!
//! A vendor registers itself with `inventory`. The linker drops a module that no code names, so each
//! vendor's module is named here, and a test counts them.

pub mod cuda;
mod entry;
pub mod host;
#[cfg(not(loom))]
pub mod library;

pub use entry::{Open, Settings, VendorEntry};

use crate::error::{Error, Result};

/// Every registered vendor, the best first.
pub fn registered() -> Vec<&'static VendorEntry> {
    // Naming the module keeps its registration in the binary.
    let _named = [&cuda::ENTRY, &host::ENTRY];
    let mut entries: Vec<_> = inventory::iter::<VendorEntry>().collect();
    entries.sort_by_key(|entry| (std::cmp::Reverse(entry.rank), entry.name));
    entries
}

/// The vendor called `name`, or the best available one. A name is never replaced by another.
pub fn select(name: Option<&str>, settings: &Settings) -> Result<&'static VendorEntry> {
    select_from(&registered(), name, settings)
}

/// One line of the report on vendors. Reporting opens no vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendorReport {
    /// The vendor's name.
    pub name: &'static str,
    /// The number of devices the vendor would show.
    pub devices: usize,
    /// Whether the vendor is the one in use.
    pub chosen: bool,
    /// The reason why the vendor is chosen, is not chosen, or cannot be used.
    pub reason: String,
}

/// Reports on every registered vendor, the best first. `name` is that of `FLAGOS_VENDOR`.
pub fn report(name: Option<&str>, settings: &Settings) -> Vec<VendorReport> {
    report_on(&registered(), name, settings)
}

fn report_on(
    entries: &[&'static VendorEntry],
    name: Option<&str>,
    settings: &Settings,
) -> Vec<VendorReport> {
    let chosen = select_from(entries, name, settings).ok();
    let describe = |entry: &&'static VendorEntry| {
        let chosen_name = chosen.map(|chosen| chosen.name);
        let reason = match ((entry.unavailable)(settings), chosen_name) {
            (Some(reason), _) => reason,
            (None, Some(chosen)) if chosen == entry.name => match name {
                Some(_) => "FLAGOS_VENDOR asks for it".into(),
                None => "the best vendor available here".into(),
            },
            (None, Some(chosen)) => match name {
                Some(_) => format!("FLAGOS_VENDOR asks for {chosen}"),
                None => format!(
                    "{chosen} is preferred; FLAGOS_VENDOR={} takes it",
                    entry.name
                ),
            },
            (None, None) => format!("`{}` is asked for", name.unwrap_or_default()),
        };
        VendorReport {
            name: entry.name,
            devices: (entry.device_count)(settings),
            chosen: chosen_name == Some(entry.name),
            reason,
        }
    };
    entries.iter().map(describe).collect()
}

fn select_from(
    entries: &[&'static VendorEntry],
    name: Option<&str>,
    settings: &Settings,
) -> Result<&'static VendorEntry> {
    let usable = |entry: &VendorEntry| (entry.unavailable)(settings).is_none();
    let names: Vec<_> = entries
        .iter()
        .filter(|e| usable(e))
        .map(|entry| entry.name)
        .collect();
    let present = names.join(", ");
    let fail = |message: String| {
        Err(Error::config("FLAGOS_VENDOR", message).with_hint(format!(
            "available here: {present}; unset it to take the best one"
        )))
    };
    let Some(name) = name else {
        let best = entries.iter().find(|entry| usable(entry)).copied();
        return best.ok_or_else(|| Error::config("FLAGOS_VENDOR", "no vendor is available"));
    };
    let Some(entry) = entries.iter().find(|entry| entry.name == name) else {
        return fail(format!("there is no vendor `{name}`"));
    };
    match (entry.unavailable)(settings) {
        Some(reason) => fail(format!("vendor `{name}` cannot be used: {reason}")),
        None => Ok(entry),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn exactly_these_vendors_are_linked() {
        let names: Vec<_> = registered().iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["cuda", "host"]);
    }

    static BETTER: VendorEntry = VendorEntry {
        name: "better",
        rank: 9,
        unavailable: |settings| {
            let missing = settings.host.seed.is_none();
            missing.then(|| "its driver is not installed".into())
        },
        ..host::ENTRY
    };

    #[test]
    fn the_best_available_is_chosen() {
        let entries = [&BETTER, &host::ENTRY];
        let mut settings = Settings::default();
        let chosen = |settings: &Settings| select_from(&entries, None, settings).map(|e| e.name);
        assert_eq!(chosen(&settings).expect("host"), "host");
        settings.host.seed = Some(1);
        assert_eq!(chosen(&settings).expect("better"), "better");
    }

    #[test]
    fn a_name_is_never_replaced() {
        let entries = [&BETTER, &host::ENTRY];
        let settings = Settings::default();
        for (name, says) in [
            ("metax", "there is no vendor `metax`"),
            ("better", "cannot be used: its driver is not installed"),
        ] {
            let error = select_from(&entries, Some(name), &settings).expect_err("refused");
            let text = error.to_string();
            assert_eq!(error.kind(), crate::ErrorKind::Config);
            assert!(
                text.contains(says) && text.contains("available here: host"),
                "{text}"
            );
        }
        let host = select_from(&entries, Some("host"), &settings).expect("host");
        assert_eq!(host.name, "host");
    }

    #[test]
    fn a_report_says_why() {
        let entries = [&BETTER, &host::ENTRY];
        let mut settings = Settings::default();
        let said = |name, settings: &Settings| {
            let reports = report_on(&entries, name, settings);
            reports
                .iter()
                .map(|report| format!("{} {}: {}", report.name, report.chosen, report.reason))
                .collect::<Vec<_>>()
        };
        let best = "the best vendor available here";
        assert_eq!(
            said(None, &settings),
            [
                "better false: its driver is not installed".to_owned(),
                format!("host true: {best}"),
            ]
        );
        settings.host.seed = Some(1);
        assert_eq!(
            said(None, &settings),
            [
                format!("better true: {best}"),
                "host false: better is preferred; FLAGOS_VENDOR=host takes it".to_owned(),
            ]
        );
        assert_eq!(
            said(Some("host"), &settings),
            [
                "better false: FLAGOS_VENDOR asks for host",
                "host true: FLAGOS_VENDOR asks for it",
            ]
        );
        assert_eq!(
            said(Some("metax"), &settings),
            [
                "better false: `metax` is asked for",
                "host false: `metax` is asked for",
            ]
        );
    }
}
