"""An engine as a process of Paceline on this host: started, watched and started again by the gateway."""
