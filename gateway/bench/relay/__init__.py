"""`prefix-gateway bench relay`: what relaying costs on one core, beside HAProxy and Rust routers."""
