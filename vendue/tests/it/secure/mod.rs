//! A cluster whose server has the permissions that `vendue auth` makes: what everybody may do works, what
//! nobody may is refused, and no refusal is silent.

mod allowed;
mod cluster;
mod deas;
mod deputies;
mod files;
mod forbidden;
mod manager;
mod silent;
mod state;
mod up;
