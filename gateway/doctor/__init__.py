"""`prefix-gateway doctor`: how many requests an endpoint runs at once, and what holds the others."""

from gateway.doctor.command import doctor as doctor
