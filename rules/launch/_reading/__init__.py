"""What launches and configuration files say of sizes; read by the rules beside this folder."""
