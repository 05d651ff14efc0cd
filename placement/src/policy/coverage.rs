//! Which fields of a request, and which resources of a cell, a policy uses.

use super::{Filter, Narrow, Policy, Step, Term};
use crate::{
    cell::Cell,
    context::{Now, PlanContext},
    invalid::Invalid,
    objective::Objective,
    preference::Preferences,
    request::{Kind, Request},
    resources::Resource,
    stages::filter,
};

impl Policy {
    /// Rejects what this policy cannot decide: an objective that does not parse, and `strict` without a filter for it.
    pub fn check_request(&self, request: &Request) -> Result<(), Invalid> {
        let demands = request.strict && !(request.near.is_empty() && request.far.is_empty());
        if demands && !self.filters_by(&Filter::Locality, request.kind) {
            let heeds = |name: &&&str| {
                let preset = Self::preset(name);
                preset.is_ok_and(|preset| preset.filters_by(&Filter::Locality, request.kind))
            };
            let heeding: Vec<&str> = Self::PRESETS.iter().filter(heeds).copied().collect();
            let expected = format!(
                "false or absent: the policy {} has no locality filter, which strict near and far need (the presets {} have one)",
                self.name(),
                heeding.join(", ")
            );
            return Err(Invalid::new("strict", true, expected));
        }
        let (Some(text), Some(base)) = (&request.objective, self.objective()) else {
            return Ok(());
        };
        Objective::parse(text, base.constants())
            .map(|_| ())
            .map_err(|e| Invalid::new("objective", &e, "an expression of the objective language"))
    }

    /// Returns what the request asks for and no stage of this policy uses: one line per field, which begins with the
    /// field's name. Facts about the work (owner, tags, blob) are not demands.
    pub fn ignored_fields(&self, request: &Request) -> Vec<String> {
        let kind = request.kind;
        let by = |filter: Filter| self.filters_by(&filter, kind);
        let mut out = Vec::new();
        let mut ignored = |field: &str, asked: bool, heeded: &dyn Fn() -> bool| {
            if asked && !heeded() {
                let name = self.name();
                out.push(format!(
                    "{field}: the policy {name} has no stage for it; ignored"
                ));
            }
        };
        let strict = request.strict;
        let local = || self.narrows_by_locality(kind) || (strict && by(Filter::Locality));
        let platform = || by(Filter::Platform);
        let stack = || by(Filter::Stack) || self.has_objective();
        let extra = request.extra.values().any(|amount| *amount > 0);
        ignored("near", !request.near.is_empty(), &local);
        ignored("far", !request.far.is_empty(), &local);
        ignored("strict", strict, &|| by(Filter::Locality));
        ignored("stack", request.stack.is_some(), &stack);
        ignored("cpu_millis", request.cpu_millis > 0, &|| {
            by(Filter::Amount(Resource::Cpu))
        });
        ignored("extra", extra, &|| by(Filter::Extra));
        ignored("devices", !request.devices.is_empty(), &|| {
            by(Filter::Extra)
        });
        ignored("traits", !request.traits.is_empty(), &|| by(Filter::Traits));
        let asks = request.prefer != Preferences::default();
        ignored("prefer", asks, &|| self.scores_by(kind, &Term::Preferred));
        ignored("networks", !request.networks.is_empty(), &|| {
            by(Filter::Networks)
        });
        ignored("min_platform", !request.min_platform.is_empty(), &platform);
        ignored("max_platform", !request.max_platform.is_empty(), &platform);
        ignored("volumes_from", !request.volumes_from.is_empty(), &|| {
            by(Filter::VolumesFrom)
        });
        ignored(
            "volume_drivers",
            !request.volume_drivers.is_empty(),
            &|| by(Filter::VolumeDrivers),
        );
        ignored(
            "placement_tags",
            !request.placement_tags.is_empty(),
            &|| by(Filter::PlacementTags),
        );
        ignored("overcommit", !request.overcommit.is_empty(), &|| {
            by(Filter::OvercommitRatios)
        });
        if request.objective.is_some() && !self.scores_by_objective(kind) {
            let name = self.name();
            out.push(format!("objective: the policy {name} has none; ignored"));
        }
        out
    }

    /// Returns the resources without a filter in this policy, for at least one kind of work: a plan may promise more of
    /// them than cells have.
    pub fn unfiltered_resources(&self) -> Vec<&'static str> {
        let held = |filter: &Filter| {
            let kinds = [Kind::Lrp, Kind::Task];
            kinds.iter().all(|kind| self.filters_by(filter, *kind))
        };
        let amounts = Resource::ALL.into_iter().map(Filter::Amount);
        let unfiltered_resources = amounts
            .chain([Filter::Extra])
            .filter(|filter| !held(filter));
        unfiltered_resources.map(|filter| filter.name()).collect()
    }

    /// Returns whether a cell can never take the request under this policy, whatever runs there and whatever the date,
    /// because a filter drops it for what an operator says about it (its stacks, drivers, tags, traits, volumes,
    /// platform), or because the request excludes it. Amounts are not considered.
    pub fn never_fits(&self, cell: &Cell, request: &Request) -> bool {
        if request.excludes(&cell.cell) {
            return true;
        }
        let context = PlanContext::default();
        let lasts = |filter: &&Filter| {
            matches!(
                filter,
                Filter::Stack
                    | Filter::VolumeDrivers
                    | Filter::PlacementTags
                    | Filter::Traits
                    | Filter::VolumesFrom
                    | Filter::Platform
            )
        };
        let filters = self.stages_for(request.kind);
        let filters = filters.filter_map(|stage| match &stage.step {
            Step::Filter(filter) => Some(filter),
            _ => None,
        });
        let mut filters = filters.filter(lasts);
        filters.any(|filter| !filter::keeps(filter, cell, request, Now::of(&context)))
    }

    fn filters_by(&self, filter: &Filter, kind: Kind) -> bool {
        let same = |step: &Step| matches!(step, Step::Filter(own) if own == filter);
        self.stages_for(kind).any(|stage| same(&stage.step))
    }

    fn narrows_by_locality(&self, kind: Kind) -> bool {
        let locality = Step::Narrow(Narrow::Locality);
        self.stages_for(kind).any(|stage| stage.step == locality)
    }

    fn scores_by(&self, kind: Kind, term: &Term) -> bool {
        let same = |step: &Step| matches!(step, Step::Score(score) if score.term == *term);
        self.stages_for(kind).any(|stage| same(&stage.step))
    }

    fn scores_by_objective(&self, kind: Kind) -> bool {
        let objective = |step: &Step| matches!(step, Step::Score(score) if matches!(score.term, Term::Objective(_)));
        self.stages_for(kind).any(|stage| objective(&stage.step))
    }
}
