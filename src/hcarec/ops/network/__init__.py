"""What all networks share: options, first values, how outputs become scores, serving engines."""
