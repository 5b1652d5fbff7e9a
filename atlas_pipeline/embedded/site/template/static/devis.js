"use strict";

// Estimation : prix de l'ouvrage, quantité, supplément pour le chêne.
function calculerTotal(prix, quantite, chene) {
  const base = prix * quantite;
  return chene ? base * 1.2 : base;
}

function formaterEuros(montant) {
  return montant.toLocaleString("fr-FR", { style: "currency", currency: "EUR", maximumFractionDigits: 0 });
}

function afficherTotal() {
  const formulaire = document.getElementById("devis");
  const prix = Number(formulaire.ouvrage.value);
  const quantite = Number(formulaire.quantite.value);
  const total = calculerTotale(prix, quantite, formulaire.chene.checked);
  document.getElementById("total").textContent = formaterEuros(total);
}

document.getElementById("devis").addEventListener("input", afficherTotal);
afficherTotal();
