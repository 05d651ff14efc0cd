//! The subjects of the dialect. They have no prefix: an estate has one NATS cluster.

/// From DEAs, every 5 s: [`super::DeaAdvertisement`].
pub const ADVERTISE: &str = "dea.advertise";
/// From DEAs, every 5 s: [`super::DeaStagingAdvertisement`].
pub const STAGING_ADVERTISE: &str = "staging.advertise";
/// From DEAs, once when they start: [`super::DeaHello`].
pub const HELLO: &str = "dea.start";
/// From DEAs, when they take no more work: [`super::DeaShutdown`].
pub const SHUTDOWN: &str = "dea.shutdown";
/// From DEAs, every 10 s and on changes: [`super::DeaHeartbeat`].
pub const HEARTBEAT: &str = "dea.heartbeat";
/// From DEAs, when an instance ends: [`super::DeaExited`].
pub const EXITED: &str = "droplet.exited";
/// To all DEAs: advertise now; the body is ignored.
pub const LOCATE: &str = "dea.locate";
/// To all DEAs: report what is used; the reply is [`super::DeaStatus`].
pub const STATUS: &str = "dea.status";
/// To all DEAs: [`super::DeaDiscover`]; the reply is [`super::DeaHello`], the emptiest first.
pub const DISCOVER: &str = "dea.discover";
/// To all DEAs: [`super::DeaFilter`].
pub const STOP: &str = "dea.stop";
/// To all DEAs: [`super::DeaUpdate`].
pub const UPDATE: &str = "dea.update";
/// To all DEAs: [`super::DeaFind`]; each reply is a [`super::DeaFound`].
pub const FIND: &str = "dea.find.droplet";
/// To all DEAs: advertise room for staging now; the body is ignored.
pub const STAGING_LOCATE: &str = "staging.locate";
/// To all DEAs: [`super::DeaStagingStop`].
pub const STAGING_STOP: &str = "staging.stop";
/// To all DEAs: send a heartbeat now; the body is ignored.
pub const HEALTH_MANAGER_START: &str = "healthmanager.start";
/// To routers: [`super::DeaRoute`].
pub const REGISTER: &str = "router.register";
/// To routers: [`super::DeaRoute`].
pub const UNREGISTER: &str = "router.unregister";
/// To all DEAs: register every route now; the body is ignored.
pub const ROUTER_START: &str = "router.start";

/// Returns the subject to one DEA for a [`super::DeaStart`].
pub fn start(dea: &str) -> String {
    format!("dea.{dea}.start")
}

/// Returns the subject to one DEA for a [`super::DeaStagingStart`].
pub fn staging_start(dea: &str) -> String {
    format!("staging.{dea}.start")
}
